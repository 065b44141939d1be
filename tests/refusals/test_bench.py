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


def test_a_sequence_that_fits_into_no_memory_is_refused(capsys):
    line = refused(capsys, "bench", "--device", "cpu", "--tokens", str(10**12))
    assert "expected a layer that fits into memory, received --tokens 1000000000000" in line
