"""What the kernels refuse, and why; and that nobody needs Triton or a GPU to import the package."""

import subprocess
import sys

import pytest
import torch

from analysis.errors import UnsupportedSpecError
from analysis.inner import BACKENDS, run
from analysis.kernels import tiles
from analysis.kernels.tiles import choose
from analysis.spec import MLP, PRESETS, PerTokenRate, Placement, SoftClip, SquaredError
from tests.inner.cases import draw
from tests.kernels.agreement import LADDER, case

REFUSED = {
    "network=glu": PRESETS["vittt_glu"],
    "network=mlp": LADDER["baseline"].edit(network=MLP(2)),
    "loss=squared_error": LADDER["baseline"].edit(loss=SquaredError()),
    "lr.placement=outside_transform": LADDER["baseline"].edit(
        lr=PerTokenRate(placement=Placement.OUTSIDE_TRANSFORM)
    ),
    "transform=soft_clip": LADDER["baseline"].edit(transform=SoftClip()),
    "trained=none": LADDER["baseline"].frozen(),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_loop_outside_the_kernels_is_refused_with_its_field(reason):
    spec = REFUSED[reason]
    (inputs, weights), _ = case(spec, torch.float32)
    verdict = BACKENDS["triton"].capability(spec, inputs)
    assert not verdict.is_capable and verdict.reason.startswith(reason)
    with pytest.raises(UnsupportedSpecError, match=reason):
        run(spec, inputs, weights, backend="triton")


def test_float64_and_measuring_are_refused():
    spec = LADDER["v6"]
    inputs, weights = draw(spec)
    with pytest.raises(UnsupportedSpecError, match="float64"):
        run(spec, inputs, weights, backend="triton")
    (inputs, weights), _ = case(spec, torch.float32)
    with pytest.raises(UnsupportedSpecError, match="measure=True"):
        run(spec, inputs, weights, backend="triton", measure=True)
    with pytest.raises(UnsupportedSpecError, match="newton_schulz_dtype"):
        run(spec, inputs, weights, backend="triton", newton_schulz_dtype=torch.bfloat16)


def test_the_result_names_the_backend_and_auto_stays_off_the_interpreter():
    spec = LADDER["v6"]
    (inputs, weights), _ = case(spec, torch.float32)
    assert run(spec, inputs, weights, backend="triton").backend == "triton"
    assert run(spec, inputs, weights).backend == "parallel"


def test_tiles_shrink_to_the_shared_memory_of_the_device(monkeypatch):
    monkeypatch.setattr(tiles, "INTERPRETED", False)
    for kernel in tiles.PREFERRED:
        left, right = tiles.OPERANDS.get(kernel, (1, 1))
        for width in (64, 256, 384, 768):
            for dtype in tiles.DTYPES:
                tile = choose(kernel, 2048, width, width, dtype, 101376)
                assert tile.shared_bytes(dtype.itemsize, left, right) <= 101376
        assert choose(kernel, 2048, 384, 384, torch.bfloat16, 232448).rows >= 64


def test_a_device_with_too_little_shared_memory_is_refused_by_kernel(monkeypatch):
    spec = LADDER["v6"]
    (inputs, weights), _ = case(spec, torch.float32)
    monkeypatch.setenv("TTT_ANALYSIS_SHARED_MEMORY", "1000")
    assert "shared memory" in BACKENDS["triton"].capability(spec, inputs).reason
    with pytest.raises(UnsupportedSpecError, match="shared memory"):
        run(spec, inputs, weights, backend="triton")
    assert run(spec, inputs, weights).backend == "parallel"


@pytest.mark.parametrize("without_triton", [False, True])
def test_importing_needs_no_gpu_and_no_triton(without_triton):
    block = "import sys; sys.modules['triton'] = None\n" if without_triton else ""
    code = block + (
        "import torch, analysis.inner as inner, analysis.kernels\n"
        "from analysis.spec import PRESETS\n"
        "x = torch.zeros(1, 1, 4, 4)\n"
        "w = {n: torch.zeros(1, 1, 4, 4) for n in ('w_gate', 'w_up', 'w_out')}\n"
        "spec = PRESETS['lact_nvs_frobenius']\n"
        "inputs = inner.Inputs(x, x, x, rates=dict.fromkeys(w, x[..., :1]))\n"
        "verdict = inner.BACKENDS['triton'].capability(spec, inputs)\n"
        "assert not verdict.is_capable and verdict.reason, verdict\n"
        "assert inner.run(spec, inputs, w).backend == 'parallel'\n"
    )
    environment = {"PATH": "", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": "."}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
