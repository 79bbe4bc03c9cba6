"""Annotations of arrays are checked while tests run."""

import pytest
import torch
from jaxtyping import TypeCheckError

from pflbench.optim import sgd


def test_a_vector_of_another_shape_is_refused():
    assert sgd(torch.ones(3), torch.ones(3), lr=0.5).tolist() == [0.5] * 3
    with pytest.raises(TypeCheckError):
        sgd(torch.ones(3), torch.ones(2, 3), lr=0.5)
