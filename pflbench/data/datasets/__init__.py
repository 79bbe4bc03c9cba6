"""The built-in datasets, one file each, and what several of them are read with."""
