"""A first call that fails, disagrees or takes too long gives no time, in one sentence."""

from __future__ import annotations

import subprocess
import types

import pytest

from analysis.errors import ParameterError
from analysis.kernels.cases import Case
from analysis.speed import first_calls
from analysis.speed.first_calls import CACHES, first_call_records

CASE = Case("v6", "parallel")


@pytest.fixture
def process(monkeypatch):
    """A process that answers what the test says, and the calls that started one."""
    answer = types.SimpleNamespace(
        returncode=0, stdout='{"seconds": 3.0, "error": 0.001}\n', stderr="", calls=[]
    )

    def start(command, **options):
        answer.calls.append((command, options["env"]["TRITON_CACHE_DIR"]))
        if isinstance(answer.returncode, Exception):
            raise answer.returncode
        return answer

    expired = subprocess.TimeoutExpired
    monkeypatch.setattr(first_calls, "subprocess", types.SimpleNamespace(run=start, TimeoutExpired=expired))
    monkeypatch.setattr(first_calls.torch.cuda, "get_device_name", lambda *a: "a GPU")
    return answer


def test_the_second_process_finds_the_cache_of_the_first(process):
    records = first_call_records(CASE, "bench")
    assert [record.parameters["cache"] for record in records] == list(CACHES)
    (first, cache), (second, same) = process.calls
    assert cache == same and first == second
    assert '"rung": "v6"' in first[-1]
    assert {record.value for record in records} == {3.0}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"returncode": 1, "stderr": "a\nRuntimeError: no kernel"},
            "received an error: RuntimeError: no kernel",
        ),
        ({"stdout": '{"seconds": 3.0, "error": 0.5}\n'}, r"against float64, received 5\.0e-01"),
        ({"stdout": '{"seconds": 3.0, "error": NaN}\n'}, "received nan"),
        ({"returncode": subprocess.TimeoutExpired("python", 1)}, "received none"),
    ],
)
def test_what_goes_wrong_is_said_in_a_sentence(process, change, said):
    vars(process).update(change)
    with pytest.raises(ParameterError, match=said):
        first_call_records(CASE, "bench")
