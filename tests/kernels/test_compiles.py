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

    from analysis.kernels import small_matrix_kernels as kernels

    constants = dict(STEPS=5, ROWS=64, COLS=64, DTYPE=tl.bfloat16)
    matrices = {name: "*bf16" for name in ("start", "kept", "upstream", "out")}
    for kernel in (kernels.iterate_kernel, kernels.adjoint_kernel):
        signature = {
            name: "constexpr" if name in constants else matrices.get(name, "*fp32" if name == "coefficients" else "i32")
            for name in kernel.arg_names
        }
        source = ASTSource(kernel, signature=signature, constexprs=constants)
        assert compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}).asm["cubin"]
"""


def test_small_matrices_compile_for_a_gpu_that_is_not_here(tmp_path):
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
