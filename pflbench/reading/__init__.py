"""What a reader asks of stored runs beside the tables: which there are, and their scores in long form."""
