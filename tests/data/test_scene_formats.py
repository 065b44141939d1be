"""Scenes of one's own: the published reader's numbers, RealEstate10K files, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from analysis.data import cameras
from analysis.data.scene_formats import load_lact_scenes, load_realestate
from analysis.data.scenes import nvs_batches
from analysis.errors import DataError


@pytest.mark.parametrize(("name", "size"), [("s64x64", (64, 64)), ("s48x64", (48, 64))])
def test_the_published_reader_returns_the_same(parity_folder, name, size):
    folder = parity_folder / "nvs_real"
    golden = load_file(folder / "expected_official_dataset.safetensors")
    read = load_lact_scenes(folder / "gso_sample_data_path.json", size)
    assert read.images.shape == (1, 8, 3, *size)
    # another Pillow may differ by one grey level
    assert (read.images[0].int() - golden[f"{name}.image_u8"].int()).abs().max() <= 1
    assert torch.allclose(read.c2w[0], golden[f"{name}.c2w"], atol=1e-6)
    assert torch.allclose(read.fxfycxcy[0], golden[f"{name}.fxfycxcy"], atol=1e-6)


def test_the_published_mean_pose_is_the_same_and_its_degenerate_case_is_refused(parity_folder):
    folder = parity_folder / "nvs_real"
    golden = load_file(folder / "expected_official_dataset.safetensors")
    normalised = cameras.mean_pose_normalisation(golden["mean_pose.c2w_in"])
    assert torch.allclose(normalised, golden["mean_pose.c2w_out"], atol=2e-6)
    with pytest.raises(DataError, match="looks inwards from all sides"):
        load_lact_scenes(folder / "gso_sample_data_path.json", (8, 8), normalise="mean_pose")


@pytest.fixture
def lact_folder(tmp_path):
    rows = []
    for index in range(3):
        Image.new("RGBA", (40, 20), (255, 0, 0, 255 * (index != 1))).save(tmp_path / f"{index}.png")
        c2w = cameras.look_at(np.array([index - 1.0, -3.0, 1.0]), np.zeros(3))
        lens = {"w": 40, "h": 20, "fx": 30.0, "fy": 30.0, "cx": 20.0, "cy": 10.0}
        rows.append({**lens, "w2c": np.linalg.inv(c2w).tolist(), "file_path": f"{index}.png"})
    (tmp_path / "opencv_cameras.json").write_text(json.dumps(rows))
    return tmp_path


def test_a_folder_a_file_and_a_list_are_the_same_scene(lact_folder):
    (lact_folder / "list.json").write_text(json.dumps(["opencv_cameras.json"]))
    read = [
        load_lact_scenes(lact_folder / name, (10, 10)) for name in ("", "opencv_cameras.json", "list.json")
    ]
    assert len({one.digest for one in read}) == 1
    assert read[0].fxfycxcy[0, 0].tolist() == [15, 15, 5, 5]
    assert read[0].images[0, 0].flatten(1).unique(dim=1).flatten().tolist() == [255, 0, 0]
    assert (read[0].images[0, 1] == 255).all()  # transparent becomes white
    assert next(nvs_batches(read[0], 1, inputs=2))["target_images"].shape == (1, 1, 3, 10, 10)
    centred = load_lact_scenes(lact_folder, (10, 10), normalise="mean_pose")
    assert centred.digest != read[0].digest and centred.c2w[0, :, :3, 3].abs().max() == pytest.approx(1.0)


def change(folder, edit):
    path = folder / "opencv_cameras.json"
    rows = json.loads(path.read_text())
    path.write_text(json.dumps(edit(rows)))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda rows: [], "non-empty list of views"),
        (lambda rows: {"cameras": rows}, "non-empty list of views"),
        (lambda rows: [{**rows[0], "w2c": None}], "w2c matrix in view 0"),
        (lambda rows: [{**rows[0], "w2c": [["x"] * 4] * 4}], "numbers in the pose"),
        (lambda rows: [{**rows[0], "w2c": np.zeros((4, 4)).tolist()}], "invertible"),
        (
            lambda rows: [{key: value for key, value in rows[0].items() if key != "fx"}],
            "Expected fx in view 0",
        ),
        (lambda rows: [{**rows[0], "file_path": "absent.png"}], "no file is"),
        (lambda rows: [{**rows[0], "file_path": "opencv_cameras.json"}], "readable image"),
    ],
)
def test_malformed_cameras_are_data_errors(lact_folder, edit, message):
    change(lact_folder, edit)
    with pytest.raises(DataError, match=message):
        load_lact_scenes(lact_folder, (8, 8))


def test_impossible_settings_are_data_errors(lact_folder):
    with pytest.raises(DataError, match="up to 3"):
        load_lact_scenes(lact_folder, (8, 8), views=4)
    with pytest.raises(DataError, match="normalise among none, mean_pose"):
        load_lact_scenes(lact_folder, (8, 8), normalise="mean")
    with pytest.raises(DataError, match="positive image size"):
        load_lact_scenes(lact_folder, (0, 8))
    (lact_folder / "opencv_cameras.json").write_text("{")
    with pytest.raises(DataError, match="Expected JSON"):
        load_lact_scenes(lact_folder, (8, 8))
    with pytest.raises(DataError, match="no file is"):
        load_lact_scenes(lact_folder / "absent.json", (8, 8))


@pytest.fixture
def realestate(tmp_path):
    (tmp_path / "cameras").mkdir()
    lines = ["https://example.org/video"]
    for index in range(6):
        c2w = cameras.look_at(np.array([0.2 * index, -3.0, 1.0 + 0.1 * index]), np.array([0.0, 2.0, 0.5]))
        w2c = np.linalg.inv(c2w)[:3].flatten()
        lines.append(" ".join(map(str, [1000 * index, 0.5, 0.9, 0.5, 0.5, 0, 0, *w2c])))
        if index != 4:  # a frame that nobody extracted
            frame = tmp_path / "frames" / "clip" / f"{1000 * index}.png"
            frame.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (32, 18), (40 * index, 0, 0)).save(frame)
    (tmp_path / "cameras" / "clip.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_realestate_clips_are_read_with_their_intrinsics_in_pixels(realestate):
    read = load_realestate(realestate / "cameras", realestate / "frames", (18, 18), views=3, normalise="none")
    assert read.images.shape == (1, 3, 3, 18, 18)
    assert read.images[0, :, 0, 0, 0].tolist() == [0, 80, 200]  # frames 0, 2, 5 of 0, 1, 2, 3, 5
    assert read.fxfycxcy[0, 0].tolist() == pytest.approx([16, 16.2, 9, 9])
    assert read.c2w[0, 1, :3, 3].tolist() == pytest.approx([0.4, -3.0, 1.2], abs=1e-6)
    centred = load_realestate(realestate / "cameras", realestate / "frames", (18, 18), views=3)
    assert centred.c2w[0, :, :3, 3].abs().max() == pytest.approx(1.0)


def test_malformed_clips_are_data_errors(realestate):
    folders = (realestate / "cameras", realestate / "frames")
    with pytest.raises(DataError, match="at least 6 frames"):
        load_realestate(*folders, (8, 8), views=6)
    clip = folders[0] / "clip.txt"
    good = clip.read_text()
    clip.write_text(good + "7000 0.5 0.5\n")
    with pytest.raises(DataError, match="18 numbers in line 8"):
        load_realestate(*folders, (8, 8), views=2)
    clip.write_text(good + "7000 " + "x " * 18)
    with pytest.raises(DataError, match="Expected numbers in line 8"):
        load_realestate(*folders, (8, 8), views=2)
    clip.unlink()
    with pytest.raises(DataError, match="found none"):
        load_realestate(*folders, (8, 8), views=2)
    with pytest.raises(DataError, match="is not one"):
        load_realestate(realestate / "absent", folders[1], (8, 8), views=2)
