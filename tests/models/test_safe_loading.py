"""Checkpoint files that bring configuration objects, code, or damage along."""

from __future__ import annotations

import argparse
import collections
import os
import pathlib
import pickle
import re
import sys
import types

import numpy as np
import pytest
import torch

from analysis.errors import CheckpointError
from analysis.models.safe_loading import load_pickled, load_shapes, load_tensors

WEIGHTS = {
    "a": torch.arange(6.0).view(2, 3).t(),
    "b": torch.ones(2, dtype=torch.bfloat16),
    "n": torch.tensor(3),
}


@pytest.fixture
def fake_module(monkeypatch):
    """Make a class importable under a library's name while it is pickled, and unknown again afterwards."""

    def make(module, name, *bases, **members):
        package = types.ModuleType(module)
        cls = type(name, bases or (object,), {**members, "__module__": module, "__qualname__": name})
        setattr(package, name, cls)
        parent = module.split(".")[0]
        monkeypatch.setitem(sys.modules, parent, sys.modules.get(parent, types.ModuleType(parent)))
        monkeypatch.setitem(sys.modules, module, package)
        return cls

    return make


def saved(tmp_path, content):
    path = tmp_path / "ckpt.pth"
    torch.save(content, path)
    return path


def check_weights(found):
    assert found.keys() == WEIGHTS.keys()
    for name, tensor in WEIGHTS.items():
        assert torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype


def test_plain_files_are_read(tmp_path):
    check_weights(load_pickled(saved(tmp_path, {"model": WEIGHTS}))["model"])


def test_yacs_configuration_becomes_a_dictionary(tmp_path, fake_module):
    node = fake_module("yacs.config", "CfgNode", dict)

    def make(entries, frozen=True):
        made = node(entries)
        made.__dict__["__immutable__"] = frozen
        return made

    config = make({"MODEL": make({"NAME": "vittt_base", "DROP": 0.4}), "DATA": make({"IMG_SIZE": 224})})
    content = {"model": WEIGHTS, "optimizer": {}, "max_accuracy": 76.5, "epoch": 300, "config": config}
    path = saved(tmp_path, content)
    sys.modules.pop("yacs.config")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(path, weights_only=True)
    found = load_pickled(path)
    check_weights(found["model"])
    assert found["config"] == {"MODEL": {"NAME": "vittt_base", "DROP": 0.4}, "DATA": {"IMG_SIZE": 224}}
    assert type(found["config"]) is dict and type(found["config"]["MODEL"]) is dict
    assert found["max_accuracy"] == 76.5


def test_omegaconf_configuration_becomes_a_dictionary(tmp_path, fake_module):
    node = fake_module("omegaconf.nodes", "AnyNode")
    mapping = fake_module("omegaconf.dictconfig", "DictConfig")

    def leaf(value, parent):
        made = node()
        made.__dict__.update({"_val": value, "_parent": parent, "_metadata": None})
        return made

    config = mapping()
    config.__dict__.update({"_parent": None, "_metadata": {"flags": {}}})
    config.__dict__["_content"] = {"lr": leaf(1e-3, config), "name": leaf("tiny", config)}
    path = saved(tmp_path, {"model": WEIGHTS, "config": config})
    assert load_pickled(path)["config"] == {"lr": 1e-3, "name": "tiny"}


def test_common_objects_beside_the_weights(tmp_path):
    content = {
        "model": collections.OrderedDict(WEIGHTS),
        "args": argparse.Namespace(lr=0.1, blocks=[1, 2], out=pathlib.PurePosixPath("runs/a")),
        "best": np.float64(81.5),
        "count": np.int64(7),
        "seen": {1, 2},
        "rng": np.arange(3),
        "kind": int,
    }
    found = load_pickled(saved(tmp_path, content))
    check_weights(found["model"])
    assert found["args"] == {"lr": 0.1, "blocks": [1, 2], "out": "runs/a"}
    assert found["best"] == 81.5 and found["count"] == 7 and found["seen"] == [1, 2]
    assert "_reconstruct" in found["rng"]["unread"] and found["kind"] == "builtins.int"


class Bomb:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("function", "arguments", "named"),
    [
        (os.system, ("touch {}",), r"(posix|nt)\.system"),
        (eval, ("open({!r}, 'w')",), r"builtins\.eval"),
        (getattr, (argparse.Namespace(), "x"), r"builtins\.getattr"),
    ],
)
def test_code_is_refused_by_name_and_not_run(tmp_path, function, arguments, named):
    target = tmp_path / "ran"
    if isinstance(arguments[0], str):
        arguments = (arguments[0].format(str(target)),)
    path = tmp_path / "bad.pth"
    torch.save({"model": WEIGHTS, "config": Bomb(function, *arguments)}, path)
    with pytest.raises(CheckpointError, match=named):
        load_pickled(path)
    assert not target.exists()


def test_pickled_modules_are_refused(tmp_path):
    path = saved(tmp_path, torch.nn.Linear(2, 2))
    with pytest.raises(CheckpointError, match=r"torch\.nn.*Linear.*state_dict"):
        load_pickled(path)


@pytest.mark.parametrize("kept", [0, 10, 400, -1])
def test_truncated_files_are_named(tmp_path, kept):
    whole = saved(tmp_path, {"model": WEIGHTS})
    broken = tmp_path / "broken.pth"
    broken.write_bytes(whole.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match=r"broken\.pth"):
        load_pickled(broken)


def test_truncated_file_with_configuration_is_named(tmp_path):
    whole = saved(tmp_path, {"model": WEIGHTS, "args": argparse.Namespace(a=1)})
    data = bytearray(whole.read_bytes())
    broken = tmp_path / "broken.pth"
    broken.write_bytes(data[:-40])
    with pytest.raises(CheckpointError, match=r"broken\.pth"):
        load_pickled(broken)


def test_something_else_than_a_checkpoint(tmp_path):
    path = tmp_path / "page.pth"
    path.write_text("<html>not found</html>")
    with pytest.raises(CheckpointError, match=r"page\.pth"):
        load_pickled(path)
    with pytest.raises(CheckpointError, match="nothing there"):
        load_pickled(tmp_path / "absent.pth")
    (tmp_path / "x.safetensors").write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00{}")
    for read in (load_tensors, load_shapes):
        with pytest.raises(CheckpointError, match=re.escape(str(tmp_path / "x.safetensors"))):
            read(tmp_path / "x.safetensors")
