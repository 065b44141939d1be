"""Made-up records for the tests of verdicts: retrained models, sweeps over inner steps, distributions."""

from __future__ import annotations

from analysis.records import Record

BASELINE, FROZEN = (10.0, 10.1, 9.9), (14.0, 14.1, 13.9)
STEPS = {1: -1.0, 2: -2.0, 4: -3.0}
WORSE = {0: 0.5, 1: 0.0, 2: 0.1, 4: 0.2}
SMALL = {1: 0.3, 2: 0.6, 4: 1.2}


def trained(variant, values, steps=100, metric="perplexity", family="lact_lm"):
    return [
        Record(
            question="retrained",
            metric=metric,
            value=value,
            seeds=(seed,),
            samples=512,
            checkpoint=f"{variant}{seed}",
            parameters={"family": family, "variant": variant, "training_steps": steps},
        )
        for seed, value in enumerate(values)
    ]


KNOWN = [*trained("baseline", BASELINE), *trained("frozen", FROZEN)]


def sweep(losses=STEPS, changes=WORSE, sizes=SMALL, seeds=(0, 1), family="lact_lm", variant="baseline"):
    """A sweep a seed, by step count: inner losses, changes of the log perplexity (0: frozen), sizes of the update."""
    return [
        row
        for seed in seeds
        for k, moved in changes.items()
        for row in _at(k, moved, losses.get(k), sizes.get(k), seed, family, variant)
    ]


def _at(k, moved, loss, size, seed, family, variant):
    base = {
        "question": "inner steps",
        "seeds": () if seed is None else (seed,),
        "samples": 8,
        "data": "d",
        "parameters": {"family": family, "variant": variant, "step_size": 1.0, "inner_steps": k},
    }
    each = {"per_example": [1.0 + moved + 0.001 * i for i in range(8)], "lower_is_better": True}
    rows = [Record(**base, metric="perplexity", value=3.0, extra=each)]
    if loss is not None:
        rows.append(Record(**base, metric="inner_loss_after", value=loss))
    if size is not None:
        loops = {"layers.0.conv": size, "layers.0.glu": size}
        rows.append(Record(**base, metric="update_norm", value=2 * size, extra={"by_site": loops}))
    return rows


def clouds(accuracy=(0.99, 0.98), p_value=1 / 201, permutations=200, seeds=(0, 1)):
    """Two layers a seed, one accuracy a layer."""
    return [
        Record(
            question="distribution mismatch",
            metric=metric,
            value=value,
            seeds=(seed,),
            samples=16,
            parameters={"family": "lact_lm", "pair": "Q/K", "layer": layer, "permutations": permutations},
        )
        for seed in seeds
        for layer, clear in enumerate(accuracy)
        for metric, value in (("classifier_accuracy", clear), ("mmd_p_value", p_value))
    ]
