"""Find stored runs, tables and scores for the verbs and the API, and explain cells."""
