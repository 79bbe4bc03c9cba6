"""The contract of methods, public: `pflbench check`, or in your own tests `contract("my/fedfoo.py:FedFoo")`.

The checks run on a tiny generated federation: unequal clients, ragged last batches, a client smaller than a batch, two
seeds, and a network with batch normalization.
"""

from pflbench.testing.checks import CHECKS, Case, Finding, contract
from pflbench.testing.rounding import assert_same, nudged
from pflbench.testing.tiny import CLASSES, SHAPE, SIZES, tiny_features, tiny_federation, tiny_network, tiny_spec

__all__ = [
    "CHECKS",
    "CLASSES",
    "SHAPE",
    "SIZES",
    "Case",
    "Finding",
    "assert_same",
    "contract",
    "nudged",
    "tiny_features",
    "tiny_federation",
    "tiny_network",
    "tiny_spec",
]
