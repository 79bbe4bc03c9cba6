"""Networks: one file per architecture; each is a function `(shape, classes) -> Network`."""
