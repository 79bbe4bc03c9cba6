"""Tables from stored runs: a pure function of (store, expanded suite). Never imports torch."""
