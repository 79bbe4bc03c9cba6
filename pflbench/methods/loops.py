"""Names of `base`, until all methods are rewritten."""

from pflbench.methods.base import decayed, descend, descend_on, keep, row_mean, steps, total_loss

__all__ = ["decayed", "descend", "descend_on", "keep", "row_mean", "steps", "total_loss"]
