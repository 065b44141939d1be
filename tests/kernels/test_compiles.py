"""The compiler accepts less of Python than the interpreter does, and it needs no GPU to say so."""

import os
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from analysis.kernels import feature_adjoint_kernels as features
    from analysis.kernels import small_matrix_kernels as matrices

    NARROW = {"start", "kept", "upstream", "out"} | {"h", "d_from_x", "right", "left"}
    SIZES = {"rows", "cols", "total", "tokens", "length", "rate_step", "width"}
    SMALL = dict(STEPS=5, ROWS=64, COLS=64, DTYPE=tl.bfloat16)
    WIDE = dict(ROWS=4, BLOCK=512, DTYPE=tl.bfloat16)
    for kernel, constants in (
        (matrices.iterate_kernel, SMALL),
        (matrices.adjoint_kernel, SMALL),
        (features.read_kernel, WIDE),
        (features.learn_kernel, WIDE | {"ALL": True, "RATED": True, "ADDS": True}),
        (features.learn_kernel, WIDE | {"ALL": True, "RATED": False, "ADDS": False}),
        (features.learn_kernel, WIDE | {"ALL": False, "RATED": True, "ADDS": False}),
    ):
        types = {name: "constexpr" for name in constants} | {name: "*bf16" for name in NARROW} | {name: "i32" for name in SIZES}
        types |= {"scale": "fp32"}
        signature = {name: types.get(name, "*fp32") for name in kernel.arg_names}
        source = ASTSource(kernel, signature=signature, constexprs=constants)
        assert compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}).asm["cubin"]
"""


def test_kernels_compile_for_a_gpu_that_is_not_here(tmp_path):
    pytest.importorskip("triton.backends.nvidia")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
