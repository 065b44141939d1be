"""The compiler accepts less of Python than the interpreter does, and it needs no GPU to say so.

Every launch of the ladder, forward and backward, is compiled with the arguments that it would be launched with: a size of
one, for instance, becomes a constant of the kernel.
"""

import os
import subprocess
import sys
import textwrap

import pytest

FAULT = """
    from analysis.kernels.matrix_kernels import scale_kernel as kernel
    kernel._unsafe_update_src(kernel.src.replace("matrix, block =", "blocks = blocks.to(tl.int32)\\n    matrix, block =", 1))
"""
"""Right in the interpreter, and for every matrix of more than one block."""

SCRIPT = """
    import importlib, pkgutil
    import torch, triton
    from triton.backends.compiler import GPUTarget
    from triton.runtime.jit import JITFunction

    import analysis.kernels
    from analysis.kernels import small_matrices
    from analysis.kernels.bench import run_kernels, training_call
    from analysis.kernels.cases import Case, draw
    from analysis.speed.suites import forms, loop_of

    class NoDevice:
        get_current_target = lambda self: GPUTarget("cuda", 90, 32)
        get_current_device = lambda self: 0
        get_current_stream = lambda self, device: 0

    launch, launched = JITFunction.run, set()

    def compile_only(self, *args, grid, warmup, **options):
        launched.add((self.fn.__module__, self.fn.__name__))
        return launch(self, *args, grid=grid, warmup=True, **options)

    FAULT
    triton.runtime.driver.set_active(NoDevice())
    JITFunction.run = compile_only
    for case in [Case(rung, form, tokens=96, chunk=32, width=width, heads=heads)
                 for rung in ("baseline", "v2", "v5", "v6") for form in forms(rung) for width, heads in ((24, 1), (64, 2))]:
        spec = loop_of(case)
        training_call(lambda tensors: run_kernels(spec, case, tensors).outputs)(draw(spec, case, 0, "cpu"))
    small_matrices.fits = lambda x: True
    x = torch.randn(3, 20, 24).bfloat16().requires_grad_()
    small_matrices.iterate(x, ((3.0, -4.0, 2.0),) * 2).sum().backward()
    defined = {
        (name, kernel)
        for _, name, _ in pkgutil.iter_modules(analysis.kernels.__path__, "analysis.kernels.")
        for kernel, found in vars(importlib.import_module(name)).items()
        if isinstance(found, JITFunction) and kernel.endswith("_kernel") and found.fn.__module__ == name
    }
    assert launched == defined, f"never compiled: {defined - launched}"
    print(len(launched), "kernels")
"""


def compile_all(cache, fault=""):
    pytest.importorskip("triton.backends.nvidia")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache)}
    environment.pop("TRITON_INTERPRET", None)
    script = textwrap.dedent(SCRIPT).replace("FAULT\n", textwrap.dedent(fault))
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )


def test_every_launch_compiles_for_a_gpu_that_is_not_here(tmp_path):
    done = compile_all(tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_kernel_that_needs_a_size_above_one_is_noticed(tmp_path):
    done = compile_all(tmp_path, FAULT)
    assert done.returncode != 0 and "has no attribute 'to'" in done.stderr, done.stderr[-2000:]
