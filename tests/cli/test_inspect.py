"""`inspect` on a checkpoint of our own layout, and on paths that hold none."""

from __future__ import annotations

import pytest

from analysis import cli


def code_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        cli.main(list(arguments))
    return left.value.code


@pytest.fixture
def checkpoint(tmp_path):
    from analysis.models.checkpoints import save
    from analysis.models.vittt import ViTTT
    from analysis.models.vittt_config import ViTTTConfig

    config = ViTTTConfig(img_size=16, patch_size=8, embed_dim=32, depth=1, num_heads=4, num_classes=3)
    save(ViTTT(config), tmp_path / "vittt")
    return tmp_path / "vittt"


def test_inspect_shows_family_and_inner_loops(checkpoint, capsys):
    assert code_of("inspect", str(checkpoint)) == 0
    text = capsys.readouterr().out
    for part in ("ViTTT", "inner loop glu", "inner loop conv", "single update", "sha256"):
        assert part in text


def test_inspect_refuses_what_is_no_checkpoint(tmp_path, capsys):
    for path in (tmp_path, tmp_path / "absent"):
        assert code_of("inspect", str(path)) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ")
