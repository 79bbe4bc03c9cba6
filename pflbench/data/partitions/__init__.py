"""The built-in partitions, one file each."""
