"""Methods: one file per method. `pflbench.names.BUILT_IN` lists them; `pflbench.methods.testing` is their contract."""
