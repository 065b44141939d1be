"""Loading and saving: our folders, HuggingFace folders, prefixes, and every way in which a checkpoint can be wrong."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from analysis.errors import CheckpointError
from analysis.models.checkpoints import inspect, load, save
from analysis.models.lact_lm_config import LOOP
from analysis.spec import Family, Linear, ladder
from tests.models.lm_cases import SMALL, same, small_config, small_lm, state, tokens, trained

PROVENANCE = {
    "recipe": {"steps": 10},
    "seed": 3,
    "step": 10,
    "metrics": {"perplexity": 11.9},
    "commit": "abc",
}


def huggingface(folder, tensors, config=None, shards=1):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**SMALL, "model_type": "lact_swiglu", **(config or {})}))
    names = sorted(tensors)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    table = {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[i::shards]}
        save_file(part, folder / file)
        table |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": table}))
    return folder


@pytest.fixture
def host():
    return trained(small_lm())


@pytest.mark.parametrize("key", ["baseline", "v1", "v4", "v6"])
def test_own_folder_keeps_loops_and_provenance(tmp_path, key):
    loops = ladder(Family.LACT_LM, chunk=16)[key]
    made = trained(small_lm(lambda loop: loops[LOOP], tie_word_embeddings=True))
    written = save(made, tmp_path / "a", PROVENANCE)
    found = load(tmp_path / "a")
    assert found.loops == dict(loops) and found.config == made.config and not found.training
    assert found.lm_head.weight is found.model.embeddings.weight
    assert found.checkpoint.manifest == written and found.checkpoint.digest == written.sha256
    assert written.seed == 3 and written.storage == "bfloat16" and found.notes == []
    for name, parameter in made.named_parameters():
        read = found.get_parameter(name)
        assert read.dtype == torch.float32 and torch.equal(read, parameter.bfloat16().float())
    batch = {"tokens": tokens(1, 20)}
    assert torch.allclose(found(batch), made(batch), atol=0.3)


def test_saving_again_replaces_and_leaves_no_other_file(tmp_path, host):
    first = save(host, tmp_path, PROVENANCE)
    second = save(trained(host), tmp_path, PROVENANCE)
    assert first.sha256 != second.sha256 and load(tmp_path).checkpoint.digest == second.sha256
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", "model.safetensors"]
    assert save(host, tmp_path, PROVENANCE).sha256 == second.sha256


def test_saving_refuses_unknown_provenance_and_diverged_weights(tmp_path, host):
    with pytest.raises(CheckpointError, match="did you mean 'seed'"):
        save(host, tmp_path, {"sede": 3})
    with torch.no_grad():
        host.lm_head.weight[0, 0] = torch.nan
    with pytest.raises(CheckpointError, match="lm_head"):
        save(host, tmp_path)


def test_inspect_needs_no_tensors(tmp_path, host):
    save(host, tmp_path / "own", PROVENANCE)
    summary = inspect(tmp_path / "own")
    assert summary.family is Family.LACT_LM and summary.loops == host.loops and summary.storage == "bfloat16"
    assert summary.num_parameters == host.num_parameters() and summary.manifest.metrics == {
        "perplexity": 11.9
    }
    sharded = huggingface(tmp_path / "hf", state(host), shards=3)
    assert inspect(sharded).digest == load(sharded).checkpoint.digest
    assert inspect(sharded).layout == "huggingface" and inspect(sharded).storage == "float32"


@pytest.mark.parametrize("shards", [1, 3])
def test_huggingface_folder(tmp_path, host, shards):
    folder = huggingface(tmp_path / "hf", state(host), shards=shards)
    assert same(load(folder), host)
    assert same(load(next(folder.glob("*.safetensors"))), host)


def test_a_language_model_needs_neither_transformers_nor_flash_linear_attention(tmp_path, host, monkeypatch):
    folder = huggingface(tmp_path / "hf", state(host), {"transformers_version": "4.33.0"})
    for package in ("transformers", "fla", "flash_attn", "einops"):
        monkeypatch.setitem(sys.modules, package, None)
    batch = {"tokens": tokens(1, 40)}
    assert torch.equal(load(folder)(batch), host.eval()(batch))


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "module._orig_mod."])
def test_wrapper_prefixes_are_removed(tmp_path, host, prefix):
    folder = huggingface(tmp_path / "hf", {prefix + name: tensor for name, tensor in state(host).items()})
    found = load(folder)
    assert same(found, host)
    assert found.checkpoint.match.stripped == prefix and any("prefix" in note for note in found.notes)


def test_missing_parameter_is_named_with_the_closest(tmp_path, host):
    tensors = state(host)
    tensors["model.layers.0.attn.w1_"] = tensors.pop("model.layers.0.attn.w1")
    folder = huggingface(tmp_path / "hf", tensors)
    with pytest.raises(
        CheckpointError, match=r"layers\.0\.attn\.w1 \(did you mean 'model\.layers\.0\.attn\.w1_'\?\)"
    ):
        load(folder)
    with pytest.raises(CheckpointError, match="1 missing, 1 unexpected"):
        inspect(folder)


def test_extra_tensor_is_accepted_with_a_note(tmp_path, host):
    found = load(huggingface(tmp_path / "hf", {**state(host), "rotary.inv_freq": torch.ones(4)}))
    assert same(found, host) and found.notes == [
        "1 tensors are not part of this host and were left out: rotary.inv_freq"
    ]


def test_wrong_inner_factor_is_inferred(tmp_path, host):
    folder = huggingface(tmp_path / "hf", state(host), {"inter_multi": 2})
    with pytest.raises(CheckpointError, match="look like inter_multi = 1, the configuration says 2"):
        load(folder)
    folder = huggingface(tmp_path / "hf", state(host), {"num_lact_heads": 4})
    with pytest.raises(CheckpointError, match="look like num_lact_heads = 2"):
        load(folder)


def test_nan_weights_stop_the_load(tmp_path, host):
    tensors = state(host)
    tensors["model.norm.weight"][3] = torch.inf
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight"):
        load(huggingface(tmp_path / "hf", tensors))


def test_untrained_checkpoint_is_recognised(tmp_path):
    fresh = small_lm()
    with torch.no_grad():
        for name, parameter in fresh.named_parameters():
            if name.endswith(".bias"):
                parameter.zero_()
    assert "untrained" in load(huggingface(tmp_path / "hf", state(fresh))).notes[0]
    save(trained(fresh), tmp_path / "own", {"step": 0})
    assert load(tmp_path / "own").notes == ["untrained: the manifest says step 0"]


def test_changed_weights_do_not_pass_for_the_manifest(tmp_path, host):
    save(host, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, tmp_path / "model.safetensors")
    for read in (load, inspect):
        with pytest.raises(CheckpointError, match="sha256"):
            read(tmp_path)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda text: text[:-30], "cannot be read"),
        (lambda text: text.replace('"sha256"', '"sha"'), "sha256"),
        (lambda text: text.replace('"lact_lm"', '"lact_ml"', 1), "lact_ml"),
        (lambda text: text.replace('"format": 1', '"format": 9'), "format 1"),
        (lambda text: text.replace('"swiglu"', '"swigloo"'), "did you mean 'swiglu'"),
        (lambda text: "[]", "JSON object"),
    ],
)
def test_damaged_manifest(tmp_path, host, edit, message):
    save(host, tmp_path)
    file = tmp_path / "manifest.json"
    file.write_text(edit(file.read_text()))
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path)


def test_missing_and_truncated_shards(tmp_path, host):
    folder = huggingface(tmp_path / "hf", state(host), shards=3)
    shard = folder / "model-00002-of-00003.safetensors"
    data = shard.read_bytes()
    shard.write_bytes(data[:-100])
    with pytest.raises(CheckpointError, match="00002-of-00003"):
        load(folder)
    shard.unlink()
    with pytest.raises(CheckpointError, match=r"00002-of-00003\.safetensors missing"):
        load(folder)
    other = load_file(folder / "model-00001-of-00003.safetensors")
    save_file(other, shard)
    with pytest.raises(CheckpointError, match="as its index says"):
        load(folder)


def test_paths_that_hold_no_checkpoint(tmp_path, host):
    with pytest.raises(CheckpointError, match="nothing there"):
        load(tmp_path / "absent")
    with pytest.raises(CheckpointError, match=r"manifest\.json, config\.json.*received an empty folder"):
        load(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(CheckpointError, match=r"notes\.txt"):
        load(tmp_path / "notes.txt")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "lact_swiglu"}))
    (tmp_path / "__0_0.distcp").write_text("")
    with pytest.raises(CheckpointError, match="DCP-to-HuggingFace"):
        load(tmp_path)


def test_a_safetensors_file_without_a_description_is_named_itself(tmp_path, host):
    save(host, tmp_path / "own")
    bare = tmp_path / "bare.safetensors"
    bare.write_bytes((tmp_path / "own" / "model.safetensors").read_bytes())
    with pytest.raises(CheckpointError, match=r"beside .*bare\.safetensors, received neither"):
        inspect(bare)
    assert inspect(tmp_path / "own" / "model.safetensors").family is host.family


def test_another_architecture_is_recognised(tmp_path):
    torch.save({"model": {"conv1.weight": torch.ones(2), "fc.bias": torch.ones(1)}}, tmp_path / "resnet.pth")
    with pytest.raises(CheckpointError, match=r"conv1\.weight"):
        load(tmp_path / "resnet.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(CheckpointError, match="dictionary"):
        load(tmp_path / "list.pth")


def test_ladder_variants_are_not_mixed_up(tmp_path):
    linear = trained(small_lm(lambda loop: loop.edit(network=Linear())))
    save(linear, tmp_path)
    data = json.loads((tmp_path / "manifest.json").read_text())
    data["loops"][LOOP]["network"] = {"kind": "swiglu"}
    (tmp_path / "manifest.json").write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match=r"attn\.w0"):
        load(tmp_path)
    assert small_config().default_loops()[LOOP].network != linear.loops[LOOP].network
