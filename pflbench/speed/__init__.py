"""How fast training is on this machine, next to other programs that do the same work."""
