"""Stored runs to cells, verdicts, tables, figures, pages and explanations. Imports no torch where it reads runs."""
