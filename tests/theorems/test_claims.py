"""Every claim gets its recorded verdict on drawn shapes, every twin is caught, and the table says when a verdict changes."""

import dataclasses

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from analysis.errors import InputError
from analysis.theorems import CLAIMS, DRAWS, Sides, Sizes, Verdict, VerdictTable, growth, judge, verify
from analysis.theorems.claims import APPROXIMATE, relative_error

IDENTITIES = [claim for claim in CLAIMS.values() if claim.recorded is Verdict.IDENTITY]
OTHERS = [claim for claim in CLAIMS.values() if claim.recorded is not Verdict.IDENTITY]

shapes = st.builds(
    Sizes,
    chunks=st.integers(3, 5),
    chunk=st.integers(2, 5),
    width=st.integers(2, 6),
    hidden=st.integers(2, 7),
    values=st.integers(2, 5),
    heads=st.integers(1, 3),
    batch=st.integers(1, 2),
    extra=st.integers(0, 1),
)
few = settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def ids(claims):
    return [claim.id for claim in claims]


@pytest.fixture(scope="module")
def table():
    return verify()


@pytest.mark.parametrize("claim", IDENTITIES, ids=ids(IDENTITIES))
@few
@given(sizes=shapes, seed=st.integers(0, 10_000))
@example(sizes=Sizes(chunks=3, chunk=2, width=2, hidden=7, values=5, heads=3), seed=384)  # large gates
@example(
    sizes=Sizes(chunks=3, chunk=3, width=4, hidden=6, values=5, heads=3, batch=1), seed=3
)  # a third of a FLOP
def test_identities_hold_at_any_shape(claim, sizes, seed):
    assert claim.error(sizes, seed) <= claim.tolerance, (sizes, seed)


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=list(CLAIMS))
def test_the_verdict_is_the_recorded_one_and_the_twin_gets_another(claim):
    found, twin = judge(claim), judge(claim, twin=True)
    assert found.as_recorded, found.errors
    assert twin.verdict is not found.verdict, f"a broken side passes unnoticed: {twin.errors}"
    clear = 1e-3 if claim.recorded is Verdict.IDENTITY else 0.0
    assert clear <= max(twin.worst, found.worst)


@pytest.mark.parametrize("claim", OTHERS, ids=ids(OTHERS))
def test_false_claims_have_a_small_counterexample(claim):
    found = judge(claim)
    if claim.recorded is Verdict.APPROXIMATION:
        assert claim.tolerance < found.worst <= APPROXIMATE and found.counterexample is None
        return
    example = found.counterexample
    assert example is not None and example.error > APPROXIMATE and example.sizes.tokens <= 9
    assert claim.error(example.sizes, example.seed) == pytest.approx(example.error)


def test_every_group_of_the_paper_and_the_post_is_covered():
    groups = {claim.group for claim in CLAIMS.values()}
    assert len(groups) >= 10
    for words in (
        "Theorem 1",
        "Theorem 2",
        "Theorem 3",
        "appendix E",
        "appendix F",
        "appendix G",
        "appendix H",
    ):
        assert any(words in claim.source for claim in CLAIMS.values()), words
    assert any("blog" in claim.source for claim in CLAIMS.values())


def test_draws_have_axes_of_different_sizes():
    for sizes in DRAWS:
        axes = (sizes.chunk, sizes.width, sizes.hidden, sizes.values)
        assert len(set(axes)) == len(axes)
    assert any(sizes.extra for sizes in DRAWS)


def test_the_table_says_what_changed(table):
    assert table.ok and table.exit_code == 0 and len(table.rows()) == len(CLAIMS)
    assert "every verdict is the recorded one" in table.summary()
    assert table["theorem-1-dot-product"].verdict is Verdict.IDENTITY
    first = table.judgements[0]
    other = dataclasses.replace(first, claim=dataclasses.replace(first.claim, recorded=Verdict.FALSE))
    changed = VerdictTable((other, *table.judgements[1:]))
    assert not changed.ok and changed.exit_code == 1 and "changed: theorem-1-dot-product" in changed.summary()
    assert str(changed).startswith("! theorem-1-dot-product")


def test_unknown_claims_are_refused_with_the_nearest_name(table):
    with pytest.raises(InputError, match="did you mean 'prefix-scan'"):
        verify(["prefix-scam"])
    with pytest.raises(InputError, match="did you mean 'prefix-scan'"):
        table["prefix-scam"]


def test_a_nan_is_an_error_and_a_zero_reference_is_compared_plainly():
    assert relative_error(torch.tensor([float("nan")]), torch.ones(1)) == float("inf")
    assert relative_error(torch.full((2,), 0.5), torch.zeros(2)) == pytest.approx(0.5 * 2**0.5)


def test_sides_of_different_shape_raise_instead_of_broadcasting():
    with pytest.raises(InputError, match=r"one shape, received \(2, 1, 5\) and \(2, 3, 5\)"):
        relative_error(torch.ones(2, 1, 5), torch.ones(2, 3, 5))


def test_gradients_are_compared_when_leaves_are_given():
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    sides = Sides({"outputs": 2 * x}, {"outputs": x + 1}, {"x": x})
    errors = sides.errors()
    assert errors["outputs"] == 0 and errors["gradient of x"] == pytest.approx(0.5)


def test_the_counterexamples_grow_with_the_number_of_chunks():
    rows = growth((1, 2, 4, 8), seeds=2)
    by_case = {
        case: [row["relative error"] for row in rows if row["case"] == case]
        for case in {row["case"] for row in rows}
    }
    assert by_case["post-norm"][0] < 1e-10 and by_case["M inside the momentum sum"][0] < 1e-10
    assert by_case["moving kernel"][0] > 1e-3
    for errors in by_case.values():
        assert errors[-1] > errors[1] > 0.01
