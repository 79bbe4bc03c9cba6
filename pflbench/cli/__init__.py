"""The command line: one file per verb. Parses, calls, prints; heavy imports happen inside the verbs that need them."""
