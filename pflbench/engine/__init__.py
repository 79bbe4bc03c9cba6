"""The engine: rounds, client maps, and evaluation. It knows methods and federations, never suites or files."""
