"""tmp"""
from analysis.kernels import forward
from analysis.kernels.signature import prepare
def run(plan, t, rates, momentum, weights, update_tokens, *, is_parallel):
    ops = prepare(plan, t["q"], t["k"], t["v"], rates, momentum, weights, update_tokens)
    return forward.runner(plan, ops, is_parallel=is_parallel)(ops)
