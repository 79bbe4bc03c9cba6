"""Training as the command line and the Python API ask for it: plans, runs, tuning, counting, and their events."""
