"""Scripts that import Azure ML's SDK v1, run as they are: ``ranklift run-v1``."""
