"""A job's files on the operator's machine: which are missing, how they are fetched and kept."""
