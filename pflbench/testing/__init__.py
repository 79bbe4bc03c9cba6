"""The contract every method keeps, public: `pflbench check`, or in your own tests `contract("my/fedfoo.py:FedFoo")`.

The checks run on a tiny generated federation in float64: unequal clients, ragged last batches, a client smaller than
a batch, two seeds, and a network with batch normalization.
"""

from pflbench.testing.case import Case
from pflbench.testing.checks import BASICS, CHECKS, Finding, contract, examine
from pflbench.testing.rounding import assert_same, gaps, nudged
from pflbench.testing.tiny import CLASSES, SHAPE, SIZES, tiny_features, tiny_federation, tiny_network, tiny_spec

__all__ = [
    "BASICS",
    "CHECKS",
    "CLASSES",
    "SHAPE",
    "SIZES",
    "Case",
    "Finding",
    "assert_same",
    "contract",
    "examine",
    "gaps",
    "nudged",
    "tiny_features",
    "tiny_federation",
    "tiny_network",
    "tiny_spec",
]
