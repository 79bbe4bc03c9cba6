"""Datasets, partitions, and the federation they make: who holds which rows of one pool."""
