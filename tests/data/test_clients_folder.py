"""Images that are divided among clients already, as PFLlib's generators write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pflbench.data.datasets.clients_folder import ClientsFolder
from pflbench.data.federation import build
from pflbench.data.partitions.cafeme import Natural
from pflbench.data.source import Source, check_source
from pflbench.errors import DataMissing, PflbenchError

RANDOM = np.random.default_rng(0)
SIZES = {"train": (4, 6, 3), "test": (2, 1, 3)}
"""Rows of three clients."""
CLIENTS = {
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


def check(source: Source) -> None:
    """Compare a pool with `CLIENTS`, and the federation of the partition natural with each client."""
    parts = [part for which in SIZES for part in CLIENTS[which]]
    assert np.array_equal(source.images.numpy()[:, 0], np.concatenate([images for images, _ in parts]))
    assert np.array_equal(source.labels, np.concatenate([labels for _, labels in parts]))
    assert source.test == 6 and source.kind is not None
    assert source.kind.tolist() == np.repeat([0, 1, 2, 0, 1, 2], SIZES["train"] + SIZES["test"]).tolist()
    federation = build(source, Natural(), clients=3, training_clients=3, query="partition", seed=0)
    for client in range(3):
        for rows, which in ((federation.support[client], "train"), (federation.query[client], "test")):
            sums = federation.x[rows].sum((1, 2, 3)).tolist()
            assert sorted(sums) == sorted(CLIENTS[which][client][0].sum((1, 2)).tolist())


def written(folder: Path, form: str = "data", names: tuple[str, ...] = ("0", "1", "2")) -> Path:
    """The folder that PFLlib's `save_file` writes ("data"), also with labels as objects; or plain arrays x and y."""
    for which, clients in CLIENTS.items():
        (folder / which).mkdir(parents=True)
        for name, (images, labels) in zip(names, clients, strict=True):
            y = labels.astype(object) if form == "objects" else labels
            held = {"x": (images[:, None] / 255).astype(np.float32), "y": y}
            np.savez_compressed(folder / which / f"{name}.npz", **(held if form == "plain" else {"data": held}))
    (folder / "config.json").write_text('{"num_clients": 3}')
    return folder


@pytest.mark.parametrize("form", ["data", "objects", "plain"])
def test_files_with_one_array_data_or_with_x_and_y(form: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "MNIST", form)
    check(loaded(folder))
    assert len(ClientsFolder(root=folder).files(tmp_path)) == 6


def test_images_from_minus_one_to_one_need_a_range(tmp_path: Path) -> None:
    folder = written(tmp_path / "MNIST")
    for which, clients in CLIENTS.items():
        for number, (images, labels) in enumerate(clients):
            held = {"x": (images[:, None] / 127.5 - 1).astype(np.float32), "y": labels}
            np.savez_compressed(folder / which / f"{number}.npz", data=held)
    check(loaded(folder, range="-1,1"))
    with pytest.raises(PflbenchError, match='range = "-1,1"'):
        loaded(folder)


@pytest.mark.parametrize("names", [("9", "10", "11"), ("a", "b", "c")])
def test_clients_are_in_the_order_of_numbers_or_of_names(names: tuple[str, ...], tmp_path: Path) -> None:
    check(loaded(written(tmp_path / "mine", names=names)))


def test_a_folder_without_test_files_has_no_test_split(tmp_path: Path) -> None:
    folder = written(tmp_path / "mine")
    for path in (folder / "test").iterdir():
        path.unlink()
    source = loaded(folder)
    assert source.test == 0 and len(source.labels) == sum(SIZES["train"])


def test_a_client_with_an_empty_test_part(tmp_path: Path) -> None:
    folder = written(tmp_path / "mine")
    np.savez(folder / "test" / "1.npz", x=np.empty((0, 1, 5, 5), np.float32), y=np.empty(0, np.int64))
    assert loaded(folder).test == 5


def one(**arrays: Any) -> Any:
    return lambda folder: np.savez(folder / "train" / "1.npz", **arrays)


class Evil:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("evil"),)


IMAGES, LABELS = CLIENTS["train"][0]
WRONG: dict[str, Any] = {
    "no file train/CLIENT.npz": lambda folder: (folder / "train").rename(folder / "training"),
    "1 clients with a test file and no training file": lambda folder: (folder / "train" / "1.npz").unlink(),
    "arrays x and y alone. Forms of user images": one(images=IMAGES, labels=LABELS),
    "1.npz does not have": one(x=IMAGES, y=LABELS, z=LABELS),
    "x has shape": one(x=IMAGES, y=LABELS[:3]),
    "Python objects": one(x=IMAGES, y=np.array([1, None, 2, 3], dtype=object)),
    "y has type datetime": one(x=IMAGES, y=LABELS.astype("datetime64[s]")),
    "y has type <U": one(x=IMAGES, y=LABELS.astype(str)),
    "other files of": one(x=IMAGES[:, :4], y=LABELS),
    "it asks for ": one(data=np.array({"x": Evil(), "y": LABELS}, dtype=object)),
    "does not have": one(data=np.array([1, None], dtype=object)),
    "Cannot read x and y": one(data=np.array({"x": [[1], [1, 2]], "y": [0, 1]}, dtype=object)),
    "type <U5 instead of uint8": one(x=np.full((4, 5, 5), "a.png"), y=LABELS),
}


@pytest.mark.parametrize("named", WRONG)
def test_what_is_refused(named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    WRONG[named](written(tmp_path / "mine"))
    with pytest.raises(PflbenchError, match=named) as refused:
        loaded(tmp_path / "mine")
    assert str(tmp_path / "mine") in str(refused.value) and not Path("evil").exists()


@pytest.mark.parametrize("files", [("train/all_data_0.json", "test/all_data_0.json"), ("data.npy", "partition.pkl")])
def test_leafs_and_fl_benchs_forms_are_answered_with_the_forms_that_are_read(
    files: tuple[str, ...], tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_bytes(b"{}")
    with pytest.raises(PflbenchError, match=r"image-folder .* arrays .* clients-folder .* hf-disk "):
        loaded(tmp_path / "mine")


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(DataMissing):
        loaded(tmp_path / "mine")
