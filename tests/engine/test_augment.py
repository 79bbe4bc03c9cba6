"""Augmentation and dropout: what is drawn, for whom, and that a stack and a loop draw the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from pflbench import noise
from pflbench.engine.augment import PADDING, crop_flip
from pflbench.engine.client_map import keyed
from pflbench.engine.objective import LoopObjective, Task
from pflbench.methods.base import Batch
from pflbench.models.ops import Ops, Stacked
from pflbench.testing import tiny_features, tiny_federation

KEY = torch.tensor(noise.key(0, "here"))
FEDERATION = tiny_federation(0)


def slow(image: np.ndarray, down: int, right: int, flip: bool) -> np.ndarray:
    """The window of the padded image that begins `down` and `right` from its corner, mirrored or not."""
    padded = np.pad(image, ((0, 0), (PADDING, PADDING), (PADDING, PADDING)))
    window = padded[:, down : down + image.shape[1], right : right + image.shape[2]]
    return window[:, :, ::-1] if flip else window


def test_every_image_is_a_window_of_its_padded_self_or_its_mirror_image() -> None:
    images = torch.randint(1, 256, (400, 2, 5, 7), dtype=torch.uint8)
    made = crop_flip(images, KEY).numpy()
    seen = np.zeros((9, 9, 2), int)
    for one, image in zip(made, images.numpy(), strict=True):
        fits = [
            (d, r, f)
            for d in range(9)
            for r in range(9)
            for f in (0, 1)
            if np.array_equal(one, slow(image, d, r, bool(f)))
        ]
        assert len(fits) == 1
        seen[fits[0]] += 1
    # Uniform: each of the nine shifts about 44 times, each mirror about 200 times; 5 standard deviations.
    for counts, share in ((seen.sum((1, 2)), 1 / 9), (seen.sum((0, 2)), 1 / 9), (seen.sum((0, 1)), 1 / 2)):
        assert (np.abs(counts - 400 * share) < 5 * np.sqrt(400 * share * (1 - share))).all()


def test_an_image_is_changed_by_its_key_and_its_place_alone() -> None:
    images = torch.randint(0, 256, (3, 6, 1, 8, 8), dtype=torch.uint8)
    keys = torch.tensor([noise.key(0, i) for i in range(3)])
    stacked = crop_flip(images, keys)
    for i in range(3):
        assert torch.equal(stacked[i], crop_flip(images[i], keys[i]))
        assert torch.equal(stacked[i, :4], crop_flip(images[i, :4], keys[i]))
    assert not torch.equal(crop_flip(images[0], keys[0]), crop_flip(images[0], keys[1]))


@pytest.mark.parametrize("rate", [0.2, 0.6])
def test_dropout_keeps_the_mean_and_drops_its_share(rate: float) -> None:
    x = torch.ones(200, 50, dtype=torch.float64)
    made = Ops(KEY).dropout(x, rate)
    assert set(made.unique().tolist()) == {0.0, 1 / (1 - rate)}
    assert abs(float((made == 0).double().mean()) - rate) < 5 * (rate * (1 - rate) / x.numel()) ** 0.5
    assert torch.equal(Ops().dropout(x, rate), x)


def test_dropout_in_a_stack_is_that_of_each_client_alone() -> None:
    x = torch.randn(3, 5, 4, dtype=torch.float64)
    keys = torch.tensor([noise.key(0, i) for i in range(3)])
    stacked = Stacked(3, None, keys).dropout(x, 0.5)
    for i in range(3):
        assert torch.equal(stacked[i, :2], Ops(keys[i]).dropout(x[i, :2], 0.5))


def objective(augment: bool = True, dropout: float = 0.4) -> tuple[LoopObjective, Tensor, Batch]:
    network = tiny_features(dropout)
    rows = FEDERATION.support[3]
    b = Batch(torch.from_numpy(rows), torch.from_numpy(FEDERATION.labels[rows]))
    return LoopObjective(Task(network, FEDERATION.x, augment=augment)), network.init(0).double(), b


def test_logits_are_without_dropout_and_losses_with_it() -> None:
    f, w, b = objective(augment=False)
    plain, _, _ = objective(augment=False, dropout=0.0)
    train = b._replace(key=KEY)
    assert torch.equal(f.logits(w, train), plain.logits(w, b))
    assert torch.equal(f(w, b), plain(w, b))
    assert not torch.equal(f(w, train), plain(w, b)) and torch.equal(f(w, train), f(w, train))
    assert not torch.equal(f.grad(w, train), plain.grad(w, b))


def test_everything_sees_a_minibatchs_augmented_images() -> None:
    f, w, b = objective(dropout=0.0)
    train = b._replace(key=KEY)
    images = crop_flip(FEDERATION.x[b.rows], KEY)
    augmented = LoopObjective(Task(tiny_features(), images))
    there = Batch(torch.arange(len(b.rows)), b.labels)
    assert torch.equal(f.logits(w, train), augmented.logits(w, there))
    assert torch.equal(f.features(w, train), augmented.features(w, there))
    assert torch.equal(f.grad(w, train), augmented.grad(w, there))
    assert torch.equal(f.logits(w, b), objective(augment=False)[0].logits(w, b))


def test_a_large_minibatch_is_augmented_as_a_whole() -> None:
    f, w, _ = objective(dropout=0.4)
    rows = torch.arange(120)
    b = Batch(rows, torch.from_numpy(FEDERATION.labels[:120]), key=KEY)
    images = LoopObjective(Task(tiny_features(0.4), crop_flip(FEDERATION.x[:120], KEY)))
    assert torch.equal(f.logits(w, b), images.logits(w, Batch(rows, b.labels)))


def test_only_a_task_that_draws_gives_its_minibatches_keys_and_each_its_own() -> None:
    f, _, b = objective()
    taken = ((b, b), (b,))
    assert keyed(taken, KEY, Task(tiny_features(), FEDERATION.x)) == taken
    keys = [int(b.key) for batches in keyed(taken, KEY, f.task) for b in batches if b.key is not None]
    assert len(set(keys)) == 3


def test_features_can_be_kept_only_where_nothing_is_drawn() -> None:
    assert objective(augment=False, dropout=0.0)[0].cacheable
    assert not objective(augment=True, dropout=0.0)[0].cacheable
    assert not objective(augment=False, dropout=0.4)[0].cacheable


def test_weight_decay_is_of_weights_alone() -> None:
    f, w, _ = objective()
    layout = f.task.network.layout
    decay = f.decay(0.5, w)
    assert decay is not None
    for name, part in layout.views([decay]).items():
        assert (part == (0.5 if name.endswith("weight") else 0)).all()
    head = f.decay(0.5, w[f.part("head")], wrt="head")
    assert head is not None and torch.equal(head, decay[f.part("head")])
    assert f.decay(None, w) is None and f.decay(0.0, w) is None


def test_the_last_layers_begin_at_a_weight() -> None:
    layout = tiny_features().layout
    sizes = [4 * 9 + 4, 64 * 6 + 6, 6 * 3 + 3]
    for layers in (1, 2, 3):
        assert layout.last(layers) == slice(sum(sizes[: 3 - layers]), sum(sizes))
    for layers in (0, 4):
        with pytest.raises(Exception, match="3 layers"):
            layout.last(layers)
