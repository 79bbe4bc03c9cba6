"""Images as the library datasets saves them. The files are written as its version 5.2 writes them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from pflbench.data import content
from pflbench.data.datasets.hf_disk import HfDisk
from pflbench.data.source import Source, check_source
from pflbench.errors import DataMissing, PflbenchError, UsageError

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(256, size=(6, 5, 4, 3), dtype=np.uint8)
LABELS = [0, 1, 2, 2, 1, 0]
FEATURES: dict[str, Any] = {
    "image": {"_type": "Image"},
    "label": {"names": ["ant", "bee", "cat"], "_type": "ClassLabel"},
    "writer": {"dtype": "string", "_type": "Value"},
}
TYPE = pa.struct({"bytes": pa.binary(), "path": pa.string()})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def png(pixels: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    return file.getvalue()


def pictures(images: Any) -> pa.Array:
    return pa.array([{"bytes": png(image), "path": None} for image in images], TYPE)


def columns(rows: slice = slice(None)) -> dict[str, pa.Array]:
    images, labels = IMAGES[rows], LABELS[rows]
    writers = ["bob" if row % 2 else "ann" for row in range(6)][rows]
    return {"image": pictures(images), "label": pa.array(labels), "writer": pa.array(writers)}


def saved(folder: Path, held: dict[str, pa.Array], features: dict[str, Any] = FEATURES, shards: int = 1) -> Path:
    """What `Dataset.save_to_disk` writes."""
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table(held)
    names = [f"data-{shard:05}-of-{shards:05}.arrow" for shard in range(shards)]
    for name, rows in zip(names, np.array_split(np.arange(table.num_rows), shards), strict=True):
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table.take(rows))
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "0", "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"citation": "", "features": features}))
    return folder


def saved_splits(folder: Path, **splits: dict[str, pa.Array]) -> Path:
    """What `DatasetDict.save_to_disk` writes."""
    for name, held in splits.items():
        saved(folder / name, held)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": list(splits)}))
    return folder


def loaded(folder: Path, **options: Any) -> Source:
    dataset = HfDisk(path=folder, **options)
    source = dataset.load(Path("/nowhere"), 0)
    check_source(source, dataset, "hf-disk")
    return source


@pytest.mark.parametrize("shards", [1, 3])
def test_one_dataset(shards: int, tmp_path: Path) -> None:
    source = loaded(saved(tmp_path / "mine", columns(), shards=shards))
    assert np.array_equal(source.images.numpy(), IMAGES.transpose(0, 3, 1, 2))
    assert (source.labels.tolist(), source.classes, source.test, source.kind) == (LABELS, 3, 0, None)


def test_splits_and_whose_each_image_is(tmp_path: Path) -> None:
    folder = saved_splits(tmp_path / "mine", train=columns(), test=columns(slice(1, 4)), other=columns())
    source = loaded(folder, client="writer")
    assert (source.labels.tolist(), source.test) == ([*LABELS, 1, 2, 2], 3)
    assert source.kind is not None and source.kind.tolist() == [0, 1, 0, 1, 0, 1, 1, 0, 1]
    assert loaded(folder, train="other", test="train").test == 6
    read = {path.relative_to(folder).as_posix() for path in HfDisk(path=folder).files(tmp_path)}
    part = {"dataset_info.json", "state.json", "data-00000-of-00001.arrow"}
    assert read == {f"{split}/{name}" for split in ("train", "test") for name in part}


def test_the_order_of_its_files_is_content(tmp_path: Path) -> None:
    folder = saved(tmp_path / "mine", columns(), shards=2)
    before = content.of_dataset(HfDisk(path=folder), tmp_path, 0), loaded(folder).labels.tolist()
    edit(folder / "state.json", _data_files=[{"filename": f"data-0000{k}-of-00002.arrow"} for k in (1, 0)])
    after = content.of_dataset(HfDisk(path=folder), tmp_path, 0), loaded(folder).labels.tolist()
    assert before[0] != after[0] and before[1] == LABELS and after[1] == [*LABELS[3:], *LABELS[:3]]


def test_a_validation_split_in_place_of_a_test_split(tmp_path: Path) -> None:
    assert loaded(saved_splits(tmp_path / "mine", train=columns(), validation=columns(slice(2)))).test == 2


def test_options_of_images(tmp_path: Path) -> None:
    folder = saved(tmp_path / "mine", columns())
    assert loaded(folder, size=8, channels=1, normalize="data").images.shape == (6, 1, 8, 8)
    gray = saved(tmp_path / "gray", {**columns(), "image": pictures(IMAGES[..., 0])})
    assert loaded(gray).images.shape == (6, 1, 5, 4)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_images_as_arrays_and_labels_as_text(dtype: Any, tmp_path: Path) -> None:
    values = IMAGES if dtype == np.uint8 else IMAGES.astype(dtype) / 255
    held = {"img": pa.array(values.tolist(), pa.list_(pa.list_(pa.list_(pa.from_numpy_dtype(dtype)))))}
    held["label"] = pa.array(["cat", "ant", "bee", "bee", "ant", "cat"])
    features = {"img": {"shape": [5, 4, 3], "_type": "Array3D"}, "label": {"dtype": "string", "_type": "Value"}}
    source = loaded(saved(tmp_path / "mine", held, features))
    assert np.array_equal(source.images.numpy(), IMAGES.transpose(0, 3, 1, 2))
    assert source.labels.tolist() == [2, 0, 1, 1, 0, 2]


def test_columns_are_named_where_the_types_do_not_tell(tmp_path: Path) -> None:
    held = {**columns(), "coarse": pa.array([0] * 6)}
    features = FEATURES | {"coarse": {"names": ["x", "y"], "_type": "ClassLabel"}}
    renamed = {("fine" if name == "label" else name): column for name, column in held.items()}
    folder = saved(tmp_path / "mine", renamed, {("fine" if k == "label" else k): v for k, v in features.items()})
    with pytest.raises(PflbenchError, match=r'label = "…"\. It has image, fine, writer, coarse'):
        loaded(folder)
    assert loaded(folder, label="fine").classes == 3


def test_what_the_library_saves(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the library datasets is not installed")
    features = datasets.Features(
        image=datasets.Image(), label=datasets.ClassLabel(names=["ant", "bee", "cat"]), writer=datasets.Value("string")
    )
    plain = {"image": [Image.fromarray(image) for image in IMAGES], "label": LABELS, "writer": list("ababab")}
    whole = datasets.Dataset.from_dict(plain, features=features)
    datasets.DatasetDict(train=whole, test=whole).save_to_disk(tmp_path / "mine")
    source = loaded(tmp_path / "mine", client="writer")
    assert np.array_equal(source.images[:6].numpy(), IMAGES.transpose(0, 3, 1, 2)) and source.test == 6


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    dataset = HfDisk(path=tmp_path / "mine")
    assert dataset.status(tmp_path).startswith("missing")
    with pytest.raises(DataMissing, match="There is no"):
        dataset.load(tmp_path, 0)


def test_options_that_cannot_be() -> None:
    with pytest.raises(UsageError, match=r"must be 1 .gray. or 3"):
        HfDisk(path=Path("/mine"), channels=2)  # type: ignore[arg-type]


def edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


WRONG: dict[str, Any] = {
    "nothing that save_to_disk wrote: there is no dataset_info.json": lambda f: (f / "dataset_info.json").unlink(),
    "there is no state.json": lambda f: (f / "state.json").unlink(),
    "state.json is not readable JSON": lambda f: (f / "state.json").write_text("{"),
    "names no data files": lambda f: edit(f / "state.json", _data_files=[{"filename": "../../etc/passwd"}]),
    "flatten_indices": lambda f: edit(f / "state.json", _indices_data_files=[{"filename": "i.arrow"}]),
    "names no columns": lambda f: edit(f / "dataset_info.json", features=None),
    "There is no file .*data-00000": lambda f: (f / "data-00000-of-00001.arrow").unlink(),
    "Cannot read .*data-00000": lambda f: (f / "data-00000-of-00001.arrow").write_bytes(b"ARROW1"),
    "no bytes in row 1, but 'x.png'": lambda f: saved(
        f, {**columns(), "image": pa.array([{"bytes": png(IMAGES[0])}, *[{"path": "x.png"}] * 5], TYPE)}
    ),
    "row 2 ": lambda f: saved(
        f,
        {
            **columns(),
            "image": pa.array([{"bytes": png(i)[: 60 if n == 2 else None]} for n, i in enumerate(IMAGES)], TYPE),
        },
    ),
    "the label -1": lambda f: saved(f, {**columns(), "label": pa.array([-1, *LABELS[1:]])}),
    "has the label 3, and 3 classes are 0 to 2": lambda f: saved(f, {**columns(), "label": pa.array([3, *LABELS[1:]])}),
    "1 rows without a value": lambda f: saved(f, {**columns(), "label": pa.array([None, *LABELS[1:]])}),
    "holds no row": lambda f: saved(f, columns(slice(0))),
    "has no split 'training'": lambda f: saved_splits(f, training=columns(), other=columns()) and None,
    "several sizes": lambda f: saved(f, {**columns(), "image": pictures([*IMAGES[:5], IMAGES[0, :3]])}),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_refused(said: str, tmp_path: Path) -> None:
    WRONG[said](saved(tmp_path / "mine", columns()))
    options = {"train": "training"} if "split" in said else {}
    if options:
        edit(tmp_path / "mine" / "dataset_dict.json", splits=["one", "two"])
    with pytest.raises(PflbenchError, match=said) as refused:
        loaded(tmp_path / "mine", **options)
    assert str(tmp_path / "mine") in str(refused.value)
