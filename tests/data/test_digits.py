"""The embedded digits, prepared once: the same images as scikit-learn and torchvision give, without importing them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torchvision.transforms.functional import rotate

from pflbench.data.datasets import digits
from pflbench.data.datasets.digits import Digits, RotatedDigits

PROGRAM = """
import sys
from pathlib import Path
from pflbench.data.datasets.digits import RotatedDigits
print(int(RotatedDigits().load(Path(), 3).images.sum()), "sklearn" in sys.modules, "torchvision" in sys.modules)
"""


@pytest.mark.parametrize("elsewhere", [False, True])
def test_they_are_those_of_scikit_learn_turned_by_torchvision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    if elsewhere:
        monkeypatch.setattr(digits, "_files", list)
    levels, target = load_digits(return_X_y=True)
    pixels = torch.from_numpy(levels.reshape(-1, 1, 8, 8)).float() * (255 / 16)
    upright = torch.nn.functional.interpolate(pixels, size=(28, 28), mode="bilinear").round().to(torch.uint8)
    for _ in range(2):  # made, then read
        plain, turned = Digits().load(tmp_path, 0), RotatedDigits().load(tmp_path, 3)
        assert torch.equal(plain.images, upright) and np.array_equal(plain.labels, target)
        assert turned.kind is not None and turned.hash == plain.hash
        for row in (0, 100, 1796):
            assert torch.equal(turned.images[row], rotate(upright[row], 20.0 * int(turned.kind[row])))


def test_the_second_start_imports_neither(tmp_path: Path) -> None:
    assert digits._files(), "scikit-learn's digits lie elsewhere: they are read by scikit-learn each time"
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}

    def start() -> list[str]:
        command = [sys.executable, "-c", PROGRAM]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()

    first, second = start(), start()
    assert first[1:] == ["True", "True"] and second == [first[0], "False", "False"]
