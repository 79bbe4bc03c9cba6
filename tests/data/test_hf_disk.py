"""Images as the library datasets saves them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pflbench.data import content
from pflbench.data.datasets import hf_disk
from pflbench.data.datasets.hf_disk import HfDisk
from pflbench.data.source import Source, check_source
from pflbench.errors import DataMissing, PflbenchError, UsageError

datasets = pytest.importorskip("datasets")

IMAGES = np.random.default_rng(0).integers(256, size=(6, 5, 4, 3), dtype=np.uint8)
LABELS = [0, 1, 2, 2, 1, 0]
NAMES = ["ant", "bee", "cat"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def png(image: Image.Image, **options: Any) -> dict[str, Any]:
    file = io.BytesIO()
    image.save(file, format="PNG", **options)
    return {"bytes": file.getvalue(), "path": None}


def made(rows: slice = slice(None), **change: tuple[Any, Any]) -> Any:
    """A `Dataset` of the library. `change`: features and values of columns by name."""
    columns = {
        "image": (datasets.Image(), [png(Image.fromarray(image)) for image in IMAGES[rows]]),
        "label": (datasets.ClassLabel(names=NAMES), LABELS[rows]),
        "writer": (datasets.Value("string"), list("babaab")[rows]),
    } | change
    features = datasets.Features({name: feature for name, (feature, _) in columns.items()})
    return datasets.Dataset.from_dict({name: values for name, (_, values) in columns.items()}, features=features)


def loaded(folder: Path, **options: Any) -> Source:
    dataset = HfDisk(path=folder, **options)
    source = dataset.load(Path("/nowhere"), 0)
    check_source(source, dataset, "hf-disk")
    return source


@pytest.mark.parametrize("shards", [1, 3])
def test_one_dataset(shards: int, tmp_path: Path) -> None:
    made().save_to_disk(tmp_path / "mine", num_shards=shards)
    source = loaded(tmp_path / "mine")
    assert np.array_equal(source.images.numpy(), IMAGES.transpose(0, 3, 1, 2))
    assert (source.labels.tolist(), source.classes, source.test, source.kind) == (LABELS, 3, 0, None)


def test_splits_and_clients(tmp_path: Path) -> None:
    whole = datasets.DatasetDict(train=made(), test=made(slice(1, 4)), other=made())
    whole.save_to_disk(tmp_path / "mine")
    source = loaded(tmp_path / "mine", client="writer")
    assert (source.labels.tolist(), source.test) == ([*LABELS, 1, 2, 2], 3)
    assert source.kind is not None and source.kind.tolist() == [1, 0, 1, 0, 0, 1, 0, 1, 0]
    assert loaded(tmp_path / "mine", train="other", test="train").test == 6


def test_a_validation_split_in_place_of_a_test_split(tmp_path: Path) -> None:
    datasets.DatasetDict(train=made(), validation=made(slice(2))).save_to_disk(tmp_path / "mine")
    assert loaded(tmp_path / "mine").test == 2


def test_rows_in_another_order_than_their_file(tmp_path: Path) -> None:
    made().select([5, 1, 2]).save_to_disk(tmp_path / "mine")
    assert loaded(tmp_path / "mine", channels=3).labels.tolist() == [0, 1, 2]


def test_size_channels_and_normalization(tmp_path: Path) -> None:
    made().save_to_disk(tmp_path / "mine")
    assert loaded(tmp_path / "mine", size=8, channels=1, normalize="data").images.shape == (6, 1, 8, 8)
    gray = [png(Image.fromarray(image[..., 0])) for image in IMAGES]
    made(image=(datasets.Image(), gray)).save_to_disk(tmp_path / "gray")
    assert np.array_equal(loaded(tmp_path / "gray").images[:, 0], IMAGES[..., 0])


def test_images_are_upright_and_transparency_is_white(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x112] = 6  # to be turned by a quarter, clockwise
    turned = [png(Image.fromarray(image), exif=exif) for image in IMAGES]
    made(image=(datasets.Image(), turned)).save_to_disk(tmp_path / "turned")
    expected = np.rot90(IMAGES, -1, axes=(1, 2)).transpose(0, 3, 1, 2)
    assert np.array_equal(loaded(tmp_path / "turned").images.numpy(), expected)
    clear = [png(Image.fromarray(np.dstack([image, 0 * image[..., 0]]))) for image in IMAGES]
    made(image=(datasets.Image(), clear)).save_to_disk(tmp_path / "clear")
    assert (loaded(tmp_path / "clear").images.numpy() == 255).all()


def test_labels_as_text(tmp_path: Path) -> None:
    made(label=(datasets.Value("string"), ["cat", "ant", "bee", "bee", "ant", "cat"])).save_to_disk(tmp_path / "mine")
    assert loaded(tmp_path / "mine", label="label").labels.tolist() == [2, 0, 1, 1, 0, 2]


def test_columns_are_named_where_their_types_leave_a_choice(tmp_path: Path) -> None:
    columns = {
        "fine": (datasets.ClassLabel(names=NAMES), LABELS),
        "coarse": (datasets.ClassLabel(names=["x"]), [0] * 6),
    }
    made(**columns).remove_columns("label").save_to_disk(tmp_path / "mine")
    with pytest.raises(PflbenchError, match=r'label = "…"\. It has image, writer, fine, coarse'):
        loaded(tmp_path / "mine")
    assert loaded(tmp_path / "mine", label="fine").classes == 3


def test_its_content_is_that_of_the_files_without_the_librarys_cache(tmp_path: Path) -> None:
    def hash() -> str | None:
        return content.of_dataset(HfDisk(path=tmp_path / "mine"), tmp_path, 0)  # type: ignore[arg-type]

    made().save_to_disk(tmp_path / "mine")
    first = hash()
    (tmp_path / "mine" / "cache-0123.arrow").write_bytes(b"cached")
    assert hash() == first
    made(slice(5)).save_to_disk(tmp_path / "mine")
    assert hash() != first


def test_a_missing_folder_and_a_missing_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataMissing):
        loaded(tmp_path / "mine")
    made().save_to_disk(tmp_path / "mine")

    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(hf_disk.importlib, "import_module", missing)
    with pytest.raises(PflbenchError, match=r"pip install 'pflbench\[hf\]'"):
        loaded(tmp_path / "mine")


def test_two_channels_are_refused() -> None:
    with pytest.raises(UsageError):
        HfDisk(path=Path("/mine"), channels=2)  # type: ignore[arg-type]


def edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


PICTURES = [png(Image.fromarray(image)) for image in IMAGES]
DAMAGED = PICTURES[0]["bytes"][:60]
WRONG: dict[str, Any] = {
    "name the column of the images": lambda f: made().remove_columns("image").save_to_disk(f),
    "name the column of the labels": lambda f: made(label=(datasets.Value("int64"), LABELS)).save_to_disk(f),
    "no folder that save_to_disk wrote": lambda f: (f / "dataset_info.json").unlink(),
    "no folder that": lambda f: (f / "state.json").write_text("{"),
    "Forms of user images": lambda f: edit(f / "state.json", _data_files=[{"filename": "../../etc/passwd"}]),
    "save_to_disk wrote": lambda f: (f / "data-00000-of-00001.arrow").write_bytes(b"ARROW1"),
    "1 rows without an image, such as row 3": lambda f: made(
        image=(datasets.Image(), [*PICTURES[:3], None, *PICTURES[4:]])
    ).save_to_disk(f),
    "row 2": lambda f: made(
        image=(datasets.Image(), [*PICTURES[:2], {"bytes": DAMAGED, "path": None}, *PICTURES[3:]])
    ).save_to_disk(f),
    "neither numbers nor text": lambda f: made(
        label=(datasets.ClassLabel(names=NAMES), [None, *LABELS[1:]])
    ).save_to_disk(f),
    "several sizes": lambda f: made(
        image=(datasets.Image(), [*PICTURES[:5], png(Image.fromarray(IMAGES[0, :3]))])
    ).save_to_disk(f),
}


@pytest.mark.parametrize("named", WRONG)
def test_what_is_refused(named: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    if named.startswith(("no folder", "Forms", "save")):
        made().save_to_disk(folder)
    WRONG[named](folder)
    with pytest.raises(PflbenchError, match=named) as refused:
        loaded(folder)
    assert str(folder) in str(refused.value) and "\n" not in str(refused.value)


def test_a_split_that_is_not_there(tmp_path: Path) -> None:
    datasets.DatasetDict(one=made(), two=made()).save_to_disk(tmp_path / "mine")
    with pytest.raises(PflbenchError, match="no split 'training'"):
        loaded(tmp_path / "mine", train="training")
    made().save_to_disk(tmp_path / "plain")
    with pytest.raises(PflbenchError, match="leave out train and test"):
        loaded(tmp_path / "plain", train="train")
