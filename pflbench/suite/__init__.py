"""Suite files: a paper's table as data, and the runs it asks for."""
