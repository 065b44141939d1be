"""Errors per tensor, dtype, length and head: budgets instead of one tolerance, and a large head that stays on its own."""

import pytest
import torch

from analysis.spec import InnerLoop, Linear, PerTokenMomentum, PerTokenRate, Trained
from analysis.theorems import Sizes, error_table
from analysis.theorems.precision import budget, compare

LOOP = InnerLoop(trained=Trained.LAST, lr=PerTokenRate(), momentum=PerTokenMomentum())


@pytest.mark.parametrize("backend", ["recurrent", "parallel", "effective"])
@pytest.mark.parametrize("chunks", [3, 12])
def test_every_tensor_stays_within_its_budget(backend, chunks):
    sizes = Sizes(chunks=chunks, chunk=21, width=5, hidden=7, values=4, heads=2, batch=2, extra=1)
    rows = error_table(LOOP, sizes, (torch.float64, torch.float32), backend)
    assert {
        "outputs",
        "state w_out",
        "gradient of k",
        "gradient of rate of w_out",
        "gradient of momentum",
    } <= {row["tensor"] for row in rows}
    assert {row["tokens"] for row in rows} == {chunks * 21 + 1}
    assert not [row for row in rows if not row["within"]]


def test_a_long_bfloat16_run_shows_the_error_of_a_large_head_in_that_head_only():
    sizes = Sizes(chunks=32, chunk=64, width=8, hidden=8, values=8, heads=3, batch=1)
    loop = InnerLoop(network=Linear(), trained=Trained.LAST, lr=PerTokenRate())
    plain = error_table(loop, sizes, (torch.bfloat16,))
    large = error_table(loop, sizes, (torch.bfloat16,), scale_head=(1, 100.0))
    assert {row["tokens"] for row in large} == {2048}

    def absolute(rows, head):
        return next(
            row["largest absolute"] for row in rows if row["tensor"] == "outputs" and row["head"] == head
        )

    assert absolute(large, 1) > 1000 * absolute(plain, 1)
    for head in (0, 2):
        assert absolute(large, head) == absolute(plain, head)


def test_an_error_in_one_head_is_not_averaged_away():
    expected = {"outputs": torch.ones(1, 3, 5, 2, dtype=torch.float64)}
    found = {"outputs": expected["outputs"].clone()}
    found["outputs"][:, 1] *= 1.5
    rows = compare(found, expected, torch.bfloat16, 64)
    assert [row["within"] for row in rows] == [True, False, True]


def test_budgets_depend_on_dtype_and_length():
    assert budget(torch.float32, 64) < budget(torch.float32, 4096) < budget(torch.bfloat16, 64)
