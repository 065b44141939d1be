from copy import copy

import numpy as np
import pytest
import torch

from analysis.errors import ParameterError
from analysis.models import Tape, build
from analysis.models.vittt_config import HierarchicalViTTTConfig
from analysis.probes import distributions, evaluation_task
from analysis.probes.distributions import Clouds, capture, embed_layers, embed_pairs, explain_gaps, mismatch
from analysis.records import Store
from analysis.spec import Family


def test_capture_draws_matching_vectors_of_every_loop_of_every_layer(case):
    host, task = case
    clouds = capture(host, task, vectors=40)
    assert {(cloud.layer, cloud.loop) for cloud in clouds} == {
        (layer, loop) for layer in range(host.num_layers) for loop in host.loops
    }
    assert len(clouds) == host.num_layers * len(host.loops)
    for cloud in clouds:
        assert {points.shape[0] for points in cloud.points.values()} == {40}
        assert cloud.points["q"].shape == cloud.points["k"].shape


def test_a_loop_gives_the_same_vectors_alone_and_beside_others(case):
    host, task = case
    for loop in host.loops:
        beside = [cloud for cloud in capture(host, task, vectors=40) if cloud.loop == loop]
        for one, two in zip(capture(host, task, vectors=40, loop=loop), beside, strict=True):
            assert one.site == two.site and np.array_equal(one.places, two.places)
            assert all(np.array_equal(one.points[kind], two.points[kind]) for kind in "qkvo")


def test_loops_in_another_order_give_the_same_records(case, store, tmp_path):
    host, task = case
    rows = mismatch(host, task, vectors=40, permutations=20, store=store)
    turned = copy(host)
    turned.loops = dict(reversed(host.loops.items()))
    again = mismatch(turned, task, vectors=40, permutations=20, store=Store(tmp_path / "turned"))
    assert [(row.key, row.value) for row in again] == [(row.key, row.value) for row in rows]


def test_an_edit_that_changes_nothing_gives_the_same_vectors(language):
    host, task = language
    edited, plain = (capture(one, task, vectors=30) for one in (host.edit(lambda spec: spec), host))
    for one, two in zip(edited, plain, strict=True):
        for kind in "qkvo":
            assert np.array_equal(one.points[kind], two.points[kind])


def test_mismatch_records_every_layer_pair_and_measure(case, store):
    host, task = case
    rows = mismatch(host, task, vectors=60, permutations=20, store=store)
    assert len(rows) == len(host.loops) * host.num_layers * 2 * 5
    assert {row.parameters["loop"] for row in rows} == set(host.loops)
    accuracies = [row.value for row in rows if row.metric == "classifier_accuracy"]
    assert all(0 <= accuracy <= 1 for accuracy in accuracies)
    assert {row.parameters["pair"] for row in rows} == {"Q/K", "V/O"}


def test_another_number_of_relabellings_is_another_question(language, store):
    few, more = (mismatch(*language, vectors=40, permutations=n, store=store) for n in (19, 39))
    assert not {row.key for row in few} & {row.key for row in more}
    assert mismatch(*language, vectors=40, permutations=19, store=store) == few


def test_a_layer_without_spread_is_left_out_and_explained(language, store, monkeypatch):
    host, task = language
    flat = Clouds("layers.0", "fast_weights", {kind: np.ones((40, 4)) for kind in "qkvo"})
    monkeypatch.setattr(
        distributions, "capture", lambda *_, **__: [flat, *capture(host, task, vectors=40)[1:]]
    )
    rows = mismatch(host, task, vectors=40, permutations=20, store=store)
    assert {row.parameters["layer"] for row in rows} == {1}
    assert explain_gaps([flat])[0] == "layers.0.q: all points coincide"
    assert embed_pairs(flat)["Q/K"].skipped


def test_pictures_stand_by_layer_and_name_the_loop_where_there_are_several(case):
    host, task = case
    found = embed_layers(capture(host, task, vectors=20))
    assert list(found) == [f"layer {layer}" for layer in range(host.num_layers)]
    several = len(host.loops) > 1
    named = [f"{loop}: {pair}" if several else pair for loop in sorted(host.loops) for pair in ("Q/K", "V/O")]
    assert all(list(pairs) == named for pairs in found.values())


def test_no_vectors_are_refused(language):
    with pytest.raises(ParameterError, match="vectors must be an integer of at least 1"):
        capture(*language, vectors=0)


def test_every_vector_knows_its_example_head_and_token(case):
    host, task = case
    clouds = capture(host, task, vectors=30)
    names = [f"{clouds[-1].site}.{kind}" for kind in "qkvo"]
    kept = {name: [] for name in names}
    for batch in task.batches():
        tape = Tape(names)
        with torch.no_grad():
            host(batch, tape=tape)
        for name in names:
            kept[name].append(tape[name])
    for name in names:
        whole, found = torch.cat(kept[name]), clouds[-1]
        for point, (example, head, token) in zip(found.points[name[-1]], found.places, strict=True):
            torch.testing.assert_close(torch.from_numpy(point), whole[example, head, token])


def test_stages_of_different_size_are_each_drawn_from(store):
    config = HierarchicalViTTTConfig(
        img_size=64, num_classes=16, dim=(16, 32, 32, 32), depths=(1, 1, 1, 1), num_heads=(1, 2, 2, 2)
    )
    host = build(Family.VITTT, config).eval()
    task = evaluation_task(host, 6)
    clouds = capture(host, task, vectors=24)
    assert [cloud.points["q"].shape[0] for cloud in clouds] == [24] * host.num_layers * len(host.loops)
    assert len({int(cloud.places[:, 2].max()) for cloud in clouds}) > 1
