"""Images that are divided among clients already, in the forms of several libraries."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pflbench.data.datasets.clients_folder import ClientsFolder
from pflbench.data.federation import build
from pflbench.data.partitions.cafeme import Natural
from pflbench.data.root import data_root
from pflbench.data.source import Source, check_source
from pflbench.errors import DataMissing, PflbenchError, UsageError

REAL = data_root() / "femnist" / "data"
RANDOM = np.random.default_rng(0)
SIZES = {"train": (4, 6, 3), "test": (2, 1, 3)}
"""Rows of three clients."""
HELD = {
    part: [
        (RANDOM.integers(256, size=(n, 5, 5), dtype=np.uint8), np.arange(n, dtype=np.int64) % 3) for n in SIZES[part]
    ]
    for part in SIZES
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def loaded(folder: Path, **options: Any) -> Source:
    dataset = ClientsFolder(root=folder, **options)
    source = dataset.load(Path("/nowhere"), 0)
    check_source(source, dataset, "clients-folder")
    return source


def check(source: Source, names: list[int] | None = None) -> None:
    """That it holds what `HELD` does, and that the partition natural gives each client its own."""
    held = [part for which in ("train", "test") for part in HELD[which]]
    assert np.array_equal(source.images.numpy()[:, 0], np.concatenate([images for images, _ in held]))
    assert np.array_equal(source.labels, np.concatenate([labels for _, labels in held]))
    assert source.test == 6 and source.kind is not None
    assert source.kind.tolist() == np.repeat([0, 1, 2, 0, 1, 2], SIZES["train"] + SIZES["test"]).tolist()
    federation = build(source, Natural(), clients=3, training_clients=3, query="partition", seed=0)
    for client in range(3):
        for rows, which in ((federation.support[client], "train"), (federation.query[client], "test")):
            assert sorted(federation.x[rows].sum((1, 2, 3)).tolist()) == sorted(
                HELD[which][client][0].sum((1, 2)).tolist()
            )


def pfllib(folder: Path, low: float = -1) -> Path:
    """As PFLlib's `save_file` writes its files, whose images its generators have normalized to -1..1."""
    for which, clients in HELD.items():
        (folder / which).mkdir(parents=True)
        for number, (images, labels) in enumerate(clients):
            scaled = (images[:, None] / 255 * (1 - low) + low).astype(np.float32)
            with (folder / which / f"{number}.npz").open("wb") as file:
                np.savez_compressed(file, data={"x": scaled, "y": labels})
    (folder / "config.json").write_text('{"num_clients": 3}')
    return folder


def test_pfllib(tmp_path: Path) -> None:
    folder = pfllib(tmp_path / "MNIST")
    check(loaded(folder, range="-1,1"))
    with pytest.raises(PflbenchError, match='range = "-1,1"'):
        loaded(folder)
    assert len(ClientsFolder(root=folder).files(tmp_path)) == 6


def leaf(folder: Path, scale: float = 255, users: tuple[str, ...] = ("f0_1", "f1_2", "f2_3")) -> Path:
    """LEAF's JSON, two files of either part."""
    for which, clients in HELD.items():
        (folder / which).mkdir(parents=True)
        for file, part in (("all_data_0", slice(0, 2)), ("all_data_1", slice(2, 3))):
            data = {
                user: {"x": (images.reshape(len(images), -1) / scale).tolist(), "y": labels.tolist()}
                for user, (images, labels) in zip(users[part], clients[part], strict=True)
            }
            held = {"users": list(data), "num_samples": [len(one["y"]) for one in data.values()], "user_data": data}
            (folder / which / f"{file}_niid_0_keep_0_{which}_9.json").write_text(json.dumps(held))
    return folder


def test_leaf(tmp_path: Path) -> None:
    check(loaded(leaf(tmp_path / "data")))


def fl_bench(folder: Path, **change: Any) -> Path:
    """FL-bench's FEMNIST: flat images of all clients, and the rows of each."""
    folder.mkdir()
    images, labels, indices, start = [], [], [], 0
    for client in range(3):
        rows = {}
        for which in HELD:
            x, y = HELD[which][client]
            images.append(x.reshape(len(x), -1) / 255)
            labels.append(y)
            rows[which] = np.arange(start, start + len(y))
            start += len(y)
        indices.append({**rows, "val": np.array([], dtype=np.int64)})
    np.save(folder / "data.npy", np.concatenate(images))
    np.save(folder / "targets.npy", np.concatenate(labels))
    partition = {"separation": {"train": [0, 1, 2], "test": [0, 1, 2], "total": 3}, "data_indices": indices} | change
    (folder / "partition.pkl").write_bytes(pickle.dumps(partition))
    return folder


def test_fl_bench(tmp_path: Path) -> None:
    check(loaded(fl_bench(tmp_path / "femnist")))


@pytest.mark.parametrize("protocol", range(3, pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_are_read_from_pickles_of_python_3(protocol: int, tmp_path: Path) -> None:
    folder = fl_bench(tmp_path / "femnist")
    held = pickle.loads((folder / "partition.pkl").read_bytes())
    (folder / "partition.pkl").write_bytes(pickle.dumps(held, protocol=protocol))
    check(loaded(folder))


@pytest.mark.parametrize("names", [("images", "labels"), ("x", "y")])
@pytest.mark.parametrize("kind", ["npz", "json"])
def test_a_file_for_each_client_and_part(kind: str, names: tuple[str, str], tmp_path: Path) -> None:
    for which, clients in HELD.items():
        (tmp_path / "mine" / which).mkdir(parents=True)
        for name, arrays in zip(["2", "3", "10"], clients, strict=True):
            write(tmp_path / "mine" / which / f"{name}.{kind}", dict(zip(names, arrays, strict=True)))
    check(loaded(tmp_path / "mine"))


@pytest.mark.parametrize("kind", ["npz", "json"])
def test_a_file_for_each_client(kind: str, tmp_path: Path) -> None:
    for client, name in enumerate(["ann", "bob", "eve"]):
        (images, labels), (test_images, test_labels) = HELD["train"][client], HELD["test"][client]
        arrays = {"images": images, "labels": labels, "test_images": test_images, "test_labels": test_labels}
        write(tmp_path / "mine" / f"{name}.{kind}", arrays)
    check(loaded(tmp_path / "mine"))


def write(path: Path, arrays: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        path.write_text(json.dumps({name: array.tolist() for name, array in arrays.items()} | {"client": path.stem}))


def test_flat_lists_of_colored_images(tmp_path: Path) -> None:
    images = RANDOM.integers(256, size=(4, 5, 6, 3), dtype=np.uint8)
    write(tmp_path / "mine" / "0.json", {"x": images.reshape(4, -1), "y": np.array([0, 1, 0, 1])})
    with pytest.raises(PflbenchError, match='flat, 90 values each: say what they are, as in pixels = "32x32x3"'):
        loaded(tmp_path / "mine")
    source = loaded(tmp_path / "mine", pixels="5x6x3")
    assert np.array_equal(source.images.numpy(), images.transpose(0, 3, 1, 2))


def test_clients_of_one_part_only(tmp_path: Path) -> None:
    """LEAF's split by user: who trains is not tested."""
    folder = pfllib(tmp_path / "mine", low=0)
    (folder / "test" / "2.npz").rename(folder / "test" / "7.npz")
    source = loaded(folder)
    assert source.kind is not None and source.kind[-3:].tolist() == [3, 3, 3]
    with pytest.raises(UsageError, match="3 clients are not possible, as 2 of 4 kinds have at least 1"):
        build(source, Natural(), clients=3, training_clients=3, query="partition", seed=0)


def test_images_of_several_sizes_are_resized(tmp_path: Path) -> None:
    for side in (5, 8):
        images = RANDOM.integers(256, size=(4, side, side), dtype=np.uint8)
        write(tmp_path / "mine" / f"{side}.npz", {"images": images, "labels": np.array([0, 1, 0, 1])})
    with pytest.raises(PflbenchError, match="say one size for all"):
        loaded(tmp_path / "mine")
    assert loaded(tmp_path / "mine", size=6).images.shape == (8, 1, 6, 6)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="There is no"):
        loaded(tmp_path / "mine")


@pytest.mark.parametrize("pixels", ["28", "28x", "0x28", "28x28x3x1", "axb"])
def test_pixels_that_cannot_be(pixels: str) -> None:
    with pytest.raises(UsageError, match="height x width"):
        ClientsFolder(root=Path("/mine"), pixels=pixels)


IMAGES, LABELS = HELD["train"][0]


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("evil"),)


def one(**arrays: Any) -> Any:
    return lambda folder: write(folder / "0.npz", arrays)


def text(written: str) -> Any:
    def make(folder: Path) -> None:
        folder.mkdir()
        (folder / "0.json").write_text(written)

    return make


def evil_pfllib(folder: Path) -> None:
    pfllib(folder)
    np.savez(folder / "train" / "0.npz", data=np.array({"x": Evil(), "y": LABELS}, dtype=object))


def other_objects(folder: Path) -> None:
    pfllib(folder)
    np.savez(folder / "train" / "0.npz", data=np.array([1, None], dtype=object))


def unequal_users(folder: Path) -> None:
    leaf(folder)
    path = next((folder / "train").iterdir())
    path.write_text(json.dumps(json.loads(path.read_text()) | {"users": ["nobody"]}))


def user_twice(folder: Path) -> None:
    leaf(folder)
    path = next((folder / "train").iterdir())
    held = json.loads(path.read_text())
    path.write_text(json.dumps(held | {"users": [*held["users"], held["users"][0]]}))


def without_data(folder: Path) -> None:
    (fl_bench(folder) / "data.npy").unlink()


WRONG: dict[str, Any] = {
    "has no file of a client": lambda folder: folder.mkdir(),
    "has no labels": one(images=IMAGES),
    "'label', which means nothing here": one(images=IMAGES, labels=LABELS, label=LABELS),
    "both images and x": one(images=IMAGES, labels=LABELS, x=IMAGES, y=LABELS),
    "0.npz has no images and labels": one(),
    "holds no training image": one(images=IMAGES[:0], labels=LABELS[:0]),
    "4 images and 3 labels": one(images=IMAGES, labels=LABELS[:3]),
    "labels that are neither numbers nor text": one(images=IMAGES, labels=LABELS.astype("datetime64[s]")),
    "Python objects": one(images=IMAGES, labels=np.array([1, None, 2, 3], dtype=object)),
    "asks for ": evil_pfllib,
    "data is no dictionary of arrays": other_objects,
    "not readable JSON": text('{"x": [1'),
    "a key is there twice": text('{"x": [1], "x": [2], "y": [1]}'),
    "holds no images and labels: it must be an object": text("[1, 2]"),
    "x has rows of several lengths": text('{"x": [[1, 2], [3]], "y": [0, 1]}'),
    "users and user_data do not name the same users": unequal_users,
    "do not name the same users": user_twice,
    "client 1 has a row twice": lambda f: fl_bench(
        f, data_indices=[{"train": [0], "test": [1]}, {"train": [2, 3], "test": [3]}]
    ),
    "the partition given": without_data,
    "client 0 has rows that data.npy does not have": lambda f: fl_bench(f, data_indices=[{"train": [99], "test": []}]),
    "Cannot read .*partition.pkl": lambda f: fl_bench(f, data_indices=[Evil()]),
    "type <U5 instead of uint8": text('{"x": [["a.png"], ["b.png"]], "y": [0, 1]}'),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_refused(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    WRONG[said](tmp_path / "mine")
    with pytest.raises(PflbenchError, match=said) as refused:
        loaded(tmp_path / "mine")
    assert str(tmp_path / "mine") in str(refused.value) and not Path("evil").exists()


@pytest.mark.data
def test_the_real_part_of_leafs_femnist() -> None:
    if not REAL.is_dir():
        pytest.skip(f"missing: {REAL}")
    source = loaded(REAL, known_classes=62)
    assert (source.images.shape, source.test) == ((46_190, 1, 28, 28), 4_756)
    assert source.kind is not None and len(np.unique(source.kind)) == 300
