"""Networks: each is a function `(shape, classes) -> Network`."""
