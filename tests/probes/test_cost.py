import pytest
import torch

from analysis.errors import ParameterError
from analysis.inner import Inputs, run
from analysis.probes import cost
from analysis.spec import InnerLoop, Linear


def tensors(batch=2, heads=3, tokens=35, width=8, values=5):
    """Axes of different sizes, lest a sum over the wrong one pass."""
    torch.manual_seed(0)
    shapes = (batch, heads, tokens, width), (batch, heads, tokens, width), (batch, heads, tokens, values)
    return tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)


def normalised(scores, v):
    """Quadratic-time sums over pairs, query by query; shares nothing with the forms."""
    rows = [
        sum(scores[..., t, i, None] * v[..., i, :] for i in range(v.shape[-2]))
        / sum(scores[..., t, i, None] for i in range(v.shape[-2]))
        for t in range(scores.shape[-2])
    ]
    return torch.stack(rows, -2)


def test_softmax_attention_equals_the_library():
    q, k, v = tensors()
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    assert torch.allclose(cost.softmax_attention(q, k, v), expected, atol=1e-12)


def test_linear_attention_equals_its_quadratic_form():
    q, k, v = tensors()
    scores = cost.feature_map(q) @ cost.feature_map(k).transpose(-2, -1)
    assert torch.allclose(cost.linear_attention(q, k, v), normalised(scores, v), atol=1e-12)


def test_the_recurrence_equals_the_masked_quadratic_form():
    q, k, v = tensors()
    scores = (cost.feature_map(q) @ cost.feature_map(k).transpose(-2, -1)).tril()
    found = cost.causal_linear_attention(q, k, v)
    assert torch.allclose(found, normalised(scores, v), atol=1e-12)
    over_heads = (cost.feature_map(q) * cost.feature_map(k).cumsum(1)).sum(-1, keepdim=True)
    assert not torch.allclose(found * scores.sum(-1, keepdim=True) / over_heads, found, atol=1e-3)
    assert not torch.allclose(
        cost.causal_linear_attention(q, k, v), cost.linear_attention(q, k, v), atol=1e-3
    )


def test_a_linear_inner_loop_from_zero_is_unnormalised_linear_attention():
    q, k, v = tensors()
    found = run(
        InnerLoop(network=Linear()), Inputs(q, k, v), {"w_out": torch.zeros(2, 3, 8, 5, dtype=torch.float64)}
    )
    assert torch.allclose(found.outputs, q @ (k.transpose(-2, -1) @ v), atol=1e-12)


def test_operations_grow_as_the_formulas_say(store):
    rows = cost.costs((32, 64), width=8, repeats=1, store=store)
    counted = {
        (r.parameters["form"], r.parameters["tokens"]): r.value for r in rows if r.metric == "operations"
    }
    assert counted["softmax attention", 64] == 2 * (64 * 64 * 8 * 2)
    assert counted["softmax attention", 64] == 4 * counted["softmax attention", 32]
    assert counted["TTT, linear, whole sequence", 64] == 2 * (2 * 64 * 8 * 8)
    assert counted["linear attention", 64] == 2 * counted["linear attention", 32]
    assert cost.costs((32, 64), width=8, repeats=1, store=store) == rows


@pytest.mark.parametrize("lengths", [[], [0], [-4]])
def test_impossible_lengths_are_refused(lengths):
    with pytest.raises(ParameterError, match="at least 1"):
        cost.costs(lengths)
