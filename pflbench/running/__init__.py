"""Plan and execute runs: here in single-threaded workers, on a Slurm or Ray cluster, with leases and checkpoints."""
