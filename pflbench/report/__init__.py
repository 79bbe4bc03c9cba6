"""Stored runs to cells, verdicts, tables, figures, pages and explanations. Never imports torch."""
