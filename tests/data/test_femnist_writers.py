"""FEMNIST by writer: LEAF's and Hugging Face's forms, written here as their publishers write them, and damaged ones."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from pflbench.data.datasets.femnist import FEMNIST
from pflbench.data.federation import build
from pflbench.data.partitions.cafeme import Natural
from pflbench.data.source import Dataset, Source
from pflbench.engine.objective import _channels
from pflbench.errors import DataMissing, PflbenchError

WRITERS = ["f9_01", "f2_00", "f5_07"]
EACH = 20
NAMES = np.repeat(WRITERS, EACH)
LABELS = np.random.default_rng(0).permutation(np.arange(60) % 62)


def pixels() -> np.ndarray:
    """Ink of random gray in the middle of white paper."""
    images = np.full((60, 28, 28), 255, dtype=np.uint8)
    images[:, 5:20, 5:20] = np.random.default_rng(1).integers(0, 256, (60, 15, 15))
    return images


PIXELS = pixels()


def leaf(rows: np.ndarray, images: np.ndarray = PIXELS) -> dict[str, Any]:
    users = list(dict.fromkeys(NAMES[rows].tolist()))
    mine = {user: rows[NAMES[rows] == user] for user in users}
    return {
        "users": users,
        "num_samples": [len(own) for own in mine.values()],
        "user_data": {
            user: {"x": (images[own].reshape(-1, 784) / 255).round(6).tolist(), "y": LABELS[own].tolist()}
            for user, own in mine.items()
        },
    }


TRAIN, TEST = [np.flatnonzero(np.isin(np.arange(60) % EACH, [3, 7]) == test) for test in (False, True)]


def write_leaf(root: Path, images: np.ndarray = PIXELS) -> None:
    """Two training files and a test file: 18 and 2 images of each of three writers."""
    parts = {"train/all_data_1": TRAIN[:18], "train/all_data_0": TRAIN[18:], "test/all_data_0": TEST}
    for name, rows in parts.items():
        path = root / "femnist" / "data" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(leaf(rows, images)), encoding="utf-8-sig" if name.endswith("1") else "utf-8")


def png(image: np.ndarray) -> bytes:
    stored = io.BytesIO()
    Image.fromarray(image).save(stored, "PNG")
    return stored.getvalue()


def table(images: np.ndarray = PIXELS) -> dict[str, Any]:
    """What a Parquet file holds; the writers' images do not stand in a row."""
    order = np.random.default_rng(2).permutation(60)
    return {
        "image": [{"bytes": png(images[row]), "path": f"{row}.png"} for row in order],
        "writer_id": NAMES[order].tolist(),
        "hsf_id": [0] * 60,
        "character": LABELS[order].tolist(),
    }


def write_parquet(path: Path, held: dict[str, Any] | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(held or table()), path)


def local(root: Path) -> Path:
    return root / "flwrlabs-femnist" / "data" / "train-00000-of-00001.parquet"


# ---- LEAF


def test_leafs_training_part(tmp_path: Path) -> None:
    write_leaf(tmp_path)
    source = FEMNIST().load(tmp_path, 0)
    order = np.concatenate([TRAIN[18:], TRAIN[:18]])  # files by name
    assert np.array_equal(source.images[:, 0].numpy(), PIXELS[order]) and source.images.dtype == torch.uint8
    assert np.array_equal(source.labels, LABELS[order]) and source.labels.dtype == np.int64
    assert source.kind is not None
    assert np.array_equal(np.array(sorted(WRITERS))[source.kind], NAMES[order])
    assert source.test == 0 and source.classes == FEMNIST.classes == 62 and source.images.shape[1:] == FEMNIST.shape
    assert source.hash == FEMNIST().load(tmp_path, 1).hash and not FEMNIST.seeded
    assert FEMNIST().status(tmp_path).startswith("ready")
    assert [path.name for path in FEMNIST().files(tmp_path)] == ["all_data_0.json", "all_data_1.json"]
    FEMNIST().fetch(tmp_path)  # nothing to do


def test_leafs_test_part_comes_last(tmp_path: Path) -> None:
    write_leaf(tmp_path)
    source = FEMNIST(test=True).load(tmp_path, 0)
    order = np.concatenate([TRAIN[18:], TRAIN[:18], TEST])
    assert source.test == 6 and np.array_equal(source.images[:, 0].numpy(), PIXELS[order])
    assert source.kind is not None and np.array_equal(np.array(sorted(WRITERS))[source.kind], NAMES[order])
    assert len(FEMNIST(test=True).files(tmp_path)) == 3
    federation = build(source, Natural(18), clients=3, training_clients=3, query="partition", seed=0)
    assert [(len(s), len(q)) for s, q in zip(federation.support, federation.query, strict=True)] == [(18, 2)] * 3


# ---- Hugging Face


def test_hugging_faces_form(tmp_path: Path) -> None:
    write_parquet(local(tmp_path))
    dataset = FEMNIST("hugging-face", test=True)
    assert dataset.status(tmp_path).startswith("ready")
    source = dataset.load(tmp_path, 0)
    assert source.test == 6 and source.kind is not None
    assert np.bincount(source.kind[:54]).tolist() == [18, 18, 18] and np.bincount(source.kind[54:]).tolist() == [2] * 3
    # Every image is there once, with its own character and writer.
    rows = [np.flatnonzero((PIXELS == image).all((1, 2))).item() for image in source.images[:, 0].numpy()]
    assert sorted(rows) == list(range(60))
    assert np.array_equal(source.labels, LABELS[rows])
    assert np.array_equal(np.array(sorted(WRITERS))[source.kind], NAMES[rows])
    only = FEMNIST("hugging-face").load(tmp_path, 5)
    assert torch.equal(only.images, source.images[:54]) and only.test == 0 and only.kind is not None
    assert np.array_equal(only.labels, source.labels[:54]) and np.array_equal(only.kind, source.kind[:54])


def test_what_is_drawn_of_a_writer_depends_on_no_other_one(tmp_path: Path) -> None:
    write_parquet(local(tmp_path))
    source = FEMNIST("hugging-face").load(tmp_path, 0)
    held, other = table(), tmp_path / "other"
    mine = np.flatnonzero(np.array(held["writer_id"]) == "f5_07").tolist()
    write_parquet(local(other), {key: [values[row] for row in mine] for key, values in held.items()})
    alone = FEMNIST("hugging-face").load(other, 0)
    assert source.kind is not None
    assert torch.equal(alone.images, source.images[torch.from_numpy(source.kind == 1)])


def test_writers_with_few_images_train_on_at_least_one(tmp_path: Path) -> None:
    held = {key: values[:3] for key, values in table().items()} | {"writer_id": ["a", "b", "b"]}
    write_parquet(local(tmp_path), held)
    source = FEMNIST("hugging-face", test=True).load(tmp_path, 0)
    assert source.kind is not None and source.kind.tolist() == [0, 1, 1] and source.test == 1


# ---- pixels


@pytest.mark.parametrize("form", ["leaf", "hugging-face"])
@pytest.mark.parametrize("inverted", [False, True])
def test_paper_becomes_minus_one_and_ink_one(form: Any, inverted: bool, tmp_path: Path) -> None:
    images = 255 - PIXELS if inverted else PIXELS
    write_leaf(tmp_path, images)
    write_parquet(local(tmp_path), table(images))
    source = FEMNIST(form).load(tmp_path, 0)
    assert (source.images[:, :, 0, 0] == 255).all()
    assert source.normalization is not None
    shift, scale = _channels(source.normalization, torch.float32, torch.device("cpu"))
    seen = (source.images.float() - shift) * scale  # as the engine does it
    assert torch.allclose(seen, 1 - 2 * source.images.float() / 255, atol=1e-6)
    assert torch.allclose(seen[:, :, 0, 0], torch.tensor(-1.0)) and seen.max() > 0.9


# ---- what is missing or damaged


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("leaf", ["femnist/data/train/*.json", "preprocess.sh", "3.5 GB", 'source = "hugging-face"']),
        ("hugging-face", ["flwrlabs-femnist", "hf download", "201 MB", 'source = "leaf"']),
    ],
)
def test_what_is_missing_is_told_in_one_message(form: Any, says: list[str], tmp_path: Path) -> None:
    dataset = FEMNIST(form)
    assert dataset.status(tmp_path).startswith("missing: ") and says[0] in dataset.status(tmp_path)
    for action in (lambda: dataset.load(tmp_path, 0), lambda: dataset.fetch(tmp_path)):
        with pytest.raises(DataMissing) as error:
            action()
        assert all(text in str(error.value) for text in says) and str(tmp_path) in str(error.value)


def test_a_missing_test_part_counts_only_where_it_is_used(tmp_path: Path) -> None:
    write_leaf(tmp_path)
    (tmp_path / "femnist" / "data" / "test" / "all_data_0.json").unlink()
    assert FEMNIST().status(tmp_path).startswith("ready") and FEMNIST(test=True).status(tmp_path).startswith("missing")
    with pytest.raises(DataMissing, match=r"data/test/\*\.json"):
        FEMNIST(test=True).load(tmp_path, 0)


def first(held: Any) -> Any:
    return held["user_data"][held["users"][0]]


JSON_DAMAGE: dict[str, Callable[[Any], Any]] = {
    "no users": lambda held: held.pop("users"),
    "data of one missing": lambda held: held["user_data"].pop(held["users"][0]),
    "an empty writer": lambda held: first(held).update(x=[], y=[]),
    "an image missing": lambda held: first(held)["x"].pop(),
    "a pixel missing": lambda held: first(held)["x"][0].pop(),
    "words for pixels": lambda held: first(held)["x"][0].__setitem__(3, "dark"),
    "too light": lambda held: first(held)["x"][0].__setitem__(3, 1.01),
    "not a number": lambda held: first(held)["x"][0].__setitem__(3, float("nan")),
    "label too large": lambda held: first(held)["y"].__setitem__(0, 62),
    "half a label": lambda held: first(held)["y"].__setitem__(0, 3.5),
}


def one_message(dataset: FEMNIST, root: Path, cache: Path, name: str) -> None:
    with pytest.raises(PflbenchError) as error:
        dataset.load(root, 0)
    text = str(error.value)
    assert (name in text or text.startswith("femnist in")) and "\n" not in text and len(text) < 600


@pytest.mark.parametrize("damage", JSON_DAMAGE)
def test_a_damaged_leaf_file_is_named(damage: str, tmp_path: Path, cache: Path) -> None:
    write_leaf(tmp_path)
    path = tmp_path / "femnist" / "data" / "train" / "all_data_1.json"
    held = json.loads(path.read_text(encoding="utf-8-sig"))
    JSON_DAMAGE[damage](held)
    path.write_text(json.dumps(held))
    one_message(FEMNIST(), tmp_path, cache, str(path))


def changed(row: int, **values: Any) -> Callable[[dict[str, Any]], Any]:
    def change(held: dict[str, Any]) -> None:
        for key, value in values.items():
            held[key][row] = value

    return change


PARQUET_DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no writers": lambda held: held.pop("writer_id"),
    "no bytes": changed(3, image={"bytes": None, "path": "a.png"}),
    "a damaged image": changed(3, image={"bytes": png(PIXELS[0])[:60], "path": None}),
    "no writer": changed(3, writer_id=None),
    "label too large": changed(3, character=62),
    "no label": changed(3, character=None),
    "half labels": lambda held: held.update(character=[0.5] * 60),
}


@pytest.mark.parametrize("damage", PARQUET_DAMAGE)
def test_a_damaged_parquet_file_is_named(damage: str, tmp_path: Path, cache: Path) -> None:
    held = table()
    PARQUET_DAMAGE[damage](held)
    write_parquet(local(tmp_path), held)
    one_message(FEMNIST("hugging-face"), tmp_path, cache, str(local(tmp_path)))


# ---- real files


@pytest.mark.data
def test_real_leaf(real: Callable[[Dataset], Path]) -> None:
    root = real(FEMNIST())
    source: Source = FEMNIST().load(root, 0)
    assert source.kind is not None and set(source.labels) == set(range(62))
    corners = source.images[:, 0][:, [0, 0, -1, -1], [0, -1, 0, -1]]
    assert (corners == 255).double().mean() > 0.99
    federation = build(source, Natural(62), clients=100, training_clients=80, query=0.2, seed=0)
    sizes = [len(s) + len(q) for s, q in zip(federation.support, federation.query, strict=True)]
    assert min(sizes) >= 62 and min(map(len, federation.support)) >= 50  # one whole batch
