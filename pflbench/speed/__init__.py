"""Speed of training on this machine, beside other programs that do the same work."""
