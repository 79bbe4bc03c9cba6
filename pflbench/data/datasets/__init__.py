"""The built-in datasets, and what several of them are read with."""
