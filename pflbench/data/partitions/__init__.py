"""The built-in partitions."""
