"""Options of the benchmark that mean nothing on a processor are refused in one line, before anything is measured."""

from __future__ import annotations

import pytest

from tests.refusals.test_command_line import refused


@pytest.mark.parametrize(
    "arguments",
    [
        ["--suite", "ladder"],
        ["--budget", "5"],
        ["--records", "somewhere"],
        ["--jobs", "2"],
        ["--corpus", "somewhere"],
    ],
)
def test_an_option_for_the_kernels_needs_a_cuda_device(capsys, arguments):
    line = refused(capsys, "bench", "--device", "cpu", *arguments)
    assert f"{arguments[0]} expects a CUDA device, received a run on the cpu" in line
