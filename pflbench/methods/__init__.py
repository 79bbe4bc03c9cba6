"""Methods: one file per method. `pflbench.names.BUILT_IN` lists them; `pflbench.testing` is their contract."""
