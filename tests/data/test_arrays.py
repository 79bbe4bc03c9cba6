"""A user's own images from an .npz file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from pflbench.data import numpy_files
from pflbench.data.datasets.arrays import Arrays
from pflbench.data.pixels import as_pixels, image_shape, resized, statistics
from pflbench.data.source import check_source
from pflbench.errors import DataMissing, PflbenchError, UsageError
from pflbench.running import build
from pflbench.spec import Named
from pflbench.testing import tiny_spec

RANDOM = np.random.default_rng(0)
GRAY = RANDOM.integers(256, size=(6, 5, 4), dtype=np.uint8)
COLOR = RANDOM.integers(256, size=(6, 3, 5, 4), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 2, 1, 0])


def saved(folder: Path, **arrays: Any) -> Path:
    path = folder / "mine.npz"
    np.savez_compressed(path, **arrays)
    return path


def loaded(folder: Path, options: dict[str, Any] | None = None, **arrays: Any) -> Any:
    dataset = Arrays(file=saved(folder, **arrays), **(options or {}))
    source = dataset.load(Path("/nowhere"), 0)
    check_source(source, dataset, "arrays")
    return source


def test_gray_images(tmp_path: Path) -> None:
    source = loaded(tmp_path, images=GRAY, labels=LABELS)
    assert np.array_equal(source.images.numpy(), GRAY[:, None])
    assert source.labels.tolist() == LABELS.tolist()
    assert (source.classes, source.test, source.kind, source.normalization) == (3, 0, None, None)


@pytest.mark.parametrize("images", [COLOR, COLOR.transpose(0, 2, 3, 1)], ids=["channels-first", "channels-last"])
def test_where_the_channels_are_is_seen_where_it_can_be(images: Any, tmp_path: Path) -> None:
    assert np.array_equal(loaded(tmp_path, images=images, labels=LABELS).images.numpy(), COLOR)


@pytest.mark.parametrize("shape", [(6, 3, 8, 3), (6, 1, 8, 3), (6, 4, 8, 8), (6, 8, 8, 4)])
def test_where_it_cannot_be_it_must_be_said(shape: tuple[int, ...]) -> None:
    with pytest.raises(PflbenchError, match='say layout = "channels-first" or "channels-last"'):
        image_shape("it", shape, None)
    assert image_shape("it", shape, "channels-first")[0] == shape[1:]
    assert image_shape("it", shape, "channels-last")[0] == (shape[3], *shape[1:3])


def test_other_numbers_of_channels(tmp_path: Path) -> None:
    images = RANDOM.integers(256, size=(6, 7, 5, 13), dtype=np.uint8)
    source = loaded(tmp_path, {"layout": "channels-last", "size": 3}, images=images, labels=LABELS)
    assert source.images.shape == (6, 13, 3, 3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_become_255_levels(dtype: Any, tmp_path: Path) -> None:
    images = (GRAY / 255).astype(dtype)
    assert np.array_equal(loaded(tmp_path, images=images, labels=LABELS).images.numpy(), GRAY[:, None])


def test_floats_of_another_range(tmp_path: Path) -> None:
    images = (GRAY / 127.5 - 1).astype(np.float32)
    source = loaded(tmp_path, {"range": "-1,1"}, images=images, labels=LABELS)
    assert np.array_equal(source.images.numpy(), GRAY[:, None])


@given(arrays_of.arrays(np.float32, (3, 2, 2), elements=st.floats(0, 1, width=32)))
def test_a_float_is_rounded_to_the_nearest_level(values: Any) -> None:
    assert np.abs(as_pixels("it", values)[:, 0] - values.astype(np.float64) * 255).max() <= 0.5


def test_a_test_split_and_whose_each_row_is(tmp_path: Path) -> None:
    source = loaded(
        tmp_path,
        images=GRAY,
        labels=LABELS,
        clients=np.array(["b", "b", "a", "a", "c", "c"]),
        test_images=GRAY[:2] // 2,
        test_labels=LABELS[:2],
        test_clients=np.array(["c", "a"]),
    )
    assert np.array_equal(source.images.numpy(), np.concatenate([GRAY, GRAY[:2] // 2])[:, None])
    assert (source.labels.tolist(), source.test) == ([*LABELS.tolist(), 0, 1], 2)
    assert source.kind.tolist() == [1, 1, 0, 0, 2, 2, 2, 0]


def test_labels_as_text_are_numbered_in_their_order(tmp_path: Path) -> None:
    labels = np.array(["dog", "cat", "owl", "owl", "cat", "dog"])
    assert loaded(tmp_path, images=GRAY, labels=labels).labels.tolist() == [1, 0, 2, 2, 0, 1]


def test_the_arrays_of_medmnist_and_keras(tmp_path: Path) -> None:
    own = loaded(tmp_path, images=GRAY, labels=LABELS, test_images=GRAY, test_labels=LABELS)
    medmnist = {
        f"{which}_{what}": part
        for which in ("train", "val", "test")
        for what, part in {"images": GRAY, "labels": LABELS[:, None].astype(np.uint8)}.items()
    }
    keras = {f"{what}_{which}": part for which in ("train", "test") for what, part in {"x": GRAY, "y": LABELS}.items()}
    for arrays in (medmnist, keras):
        source = loaded(tmp_path, **arrays)
        assert (source.hash, source.test) == (own.hash, 6)


def test_what_is_known_without_loading_is_read_from_the_headers(tmp_path: Path) -> None:
    dataset = Arrays(file=saved(tmp_path, images=GRAY, labels=LABELS, test_images=GRAY[:1], test_labels=LABELS[:1]))
    assert (dataset.shape, dataset.classes, dataset.examples) == ((1, 5, 4), 3, 6)
    assert dataset.files(tmp_path) == [tmp_path / "mine.npz"]
    assert dataset.status(tmp_path).startswith("ready")
    assert Arrays(file=dataset.file, size=28).shape == (1, 28, 28)


def test_test_images_of_another_size_need_a_size(tmp_path: Path) -> None:
    arrays = {"images": GRAY, "labels": LABELS, "test_images": GRAY[:, :4], "test_labels": LABELS}
    with pytest.raises(PflbenchError, match="say their size"):
        loaded(tmp_path, **arrays)
    assert loaded(tmp_path, {"size": 8}, **arrays).images.shape == (12, 1, 8, 8)


def test_resizing_is_pillows(tmp_path: Path) -> None:
    from PIL import Image

    flat = np.full((2, 3, 9, 7), 77, dtype=np.uint8)
    assert np.array_equal(resized(flat, 4), np.full((2, 3, 4, 4), 77))
    image = COLOR[0].transpose(1, 2, 0)
    whole = np.asarray(Image.fromarray(image).resize((8, 8), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    assert np.array_equal(resized(COLOR[:1], 8)[0], whole)


def test_normalization_as_said(tmp_path: Path) -> None:
    said = {"mean": "0.1,0.2,0.3", "std": 0.5}
    assert loaded(tmp_path, said, images=COLOR, labels=LABELS).normalization == ((0.1, 0.2, 0.3), (0.5, 0.5, 0.5))


@settings(deadline=None)
@given(arrays_of.arrays(np.uint8, (3, 2, 4, 3)))
def test_normalization_from_the_data_is_numpys_mean_and_deviation(images: Any) -> None:
    if any(len(np.unique(images[:, c])) == 1 for c in range(2)):
        with pytest.raises(PflbenchError, match="are the same"):
            statistics("it", images)
        return
    mean, std = statistics("it", images)
    assert np.allclose(mean, (images / 255).mean((0, 2, 3)), rtol=0, atol=1e-12)
    assert np.allclose(std, (images / 255).std((0, 2, 3)), rtol=0, atol=1e-12)


def test_normalization_from_the_data_looks_at_no_test_row(tmp_path: Path) -> None:
    arrays = {"images": GRAY, "labels": LABELS, "test_images": GRAY[:2] // 4, "test_labels": LABELS[:2]}
    source = loaded(tmp_path, {"normalize": "data"}, **arrays)
    assert source.normalization == statistics("it", GRAY[:, None])


def test_labels_from_1_on_are_to_be_shifted(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", images=np.zeros((6, 4, 4), np.uint8), labels=np.array([1, 2, 3, 3, 1, 2]))
    with pytest.raises(PflbenchError, match=r"numbered from 1 on; subtract 1") as caught:
        assert Arrays(file=tmp_path / "mine.npz").classes
    options = {"file": str(tmp_path / "mine.npz")}
    spec = tiny_spec(dataset=Named(name="arrays", options={"file": "mine.npz"}), model="mlp")
    with pytest.raises(PflbenchError) as of_network:  # it is no fault of the network's
        build.network(spec, {"datasets.file": options["file"]})
    assert str(of_network.value) == str(caught.value)


def test_classes_without_training_images_must_be_said(tmp_path: Path) -> None:
    labels = np.array([0, 1, 3, 3, 1, 0])
    with pytest.raises(PflbenchError, match=r"no training image is of class 2: .* known_classes = 4"):
        loaded(tmp_path, images=GRAY, labels=labels)
    assert loaded(tmp_path, {"known_classes": 62}, images=GRAY, labels=labels).classes == 62


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"size": 0}, "must be positive"),
        ({"mean": 0.5}, "go together"),
        ({"mean": "0.5;0.5", "std": 1.0}, "must be numbers"),
        ({"mean": 0.5, "std": 0.0}, "must be positive"),
        ({"mean": 0.5, "std": 0.5, "normalize": "data"}, "leave them out"),
        ({"normalize": "imagenet"}, "Unknown value"),
        ({"layout": "nchw"}, "Unknown value"),
        ({"range": "1,0"}, "two numbers"),
        ({"known_classes": 1}, "at least 2"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Arrays(file=Path("/mine.npz"), **options)


def test_a_mean_for_other_channels(tmp_path: Path) -> None:
    dataset = Arrays(file=saved(tmp_path, images=COLOR, labels=LABELS), mean="0.5,0.5", std=0.5)
    with pytest.raises(UsageError, match=r"mean has 2 numbers, and the images of .* have 3 channel"):
        dataset.shape  # noqa: B018


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    dataset = Arrays(file=tmp_path / "mine.npz")
    assert dataset.status(tmp_path) == f"missing: {tmp_path / 'mine.npz'}"
    for ask in (lambda: dataset.shape, lambda: dataset.classes, lambda: dataset.load(tmp_path, 0)):
        with pytest.raises(DataMissing, match=r"There is no .*mine\.npz"):
            ask()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "no images and labels"),
    ({"images": GRAY}, "no labels"),
    ({"labels": LABELS}, "no images"),
    ({"images": GRAY, "label": LABELS}, "an array 'label'"),
    ({"images": GRAY, "x_train": GRAY, "labels": LABELS}, "both images and x_train"),
    ({"images": GRAY, "labels": LABELS[:5]}, "a row for each image"),
    ({"images": GRAY[:0], "labels": LABELS[:0]}, "holds no image"),
    ({"images": GRAY[:, :0], "labels": LABELS}, "no pixel"),
    ({"images": GRAY.reshape(6, -1), "labels": LABELS}, r"shape \(6, 20\) instead of"),
    ({"images": GRAY.astype(np.int64), "labels": LABELS}, 'type int64 instead of uint8 .*astype."uint8"'),
    ({"images": GRAY.astype(bool), "labels": LABELS}, "type bool instead"),
    ({"images": GRAY.astype(np.float32), "labels": LABELS}, r"floats from 0 to 248, outside 0 to 1"),
    ({"images": GRAY / 127.5 - 1, "labels": LABELS}, 'range = "-1,1"'),
    ({"images": np.where(GRAY > 9, GRAY / 255, np.nan), "labels": LABELS}, "NaN"),
    ({"images": np.where(GRAY > 9, GRAY / 255, np.inf), "labels": LABELS}, "infinite"),
    ({"images": GRAY, "labels": LABELS - 1}, "the label -1: number"),
    ({"images": GRAY, "labels": LABELS.astype(np.float32)}, "type float32 instead of whole numbers"),
    ({"images": GRAY, "labels": np.eye(3)[LABELS]}, r"shape \(6, 3\) instead of one entry"),
    ({"images": GRAY, "labels": LABELS * 0}, "one class only"),
    ({"images": GRAY, "labels": LABELS + 2**40}, "number the classes"),
    ({"images": GRAY, "labels": LABELS, "test_images": GRAY}, "no test_labels"),
    ({"images": GRAY, "labels": LABELS, "kind": LABELS / 2}, "type float64 instead of whole numbers or text"),
    ({"images": GRAY, "labels": LABELS, "test_kind": LABELS}, "no kind"),
    ({"images": GRAY, "labels": LABELS, "kind": LABELS, "test_images": GRAY, "test_labels": LABELS}, "no test_kind"),
    ({"images": GRAY, "labels": np.array(LABELS.tolist(), dtype=object)}, "Python objects"),
    ({"images": np.array([GRAY, None], dtype=object), "labels": LABELS[:2]}, "Python objects|instead of"),
]


@pytest.mark.parametrize(("arrays", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_is_refused(arrays: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(PflbenchError, match=said) as refused:
        loaded(tmp_path, **arrays)
    assert str(tmp_path / "mine.npz") in str(refused.value)


def test_an_array_larger_than_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(numpy_files.format, "read_array", no_memory)
    with pytest.raises(PflbenchError, match="more memory than there is"):
        loaded(tmp_path, images=GRAY, labels=LABELS)
