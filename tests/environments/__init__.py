"""Jobs that bring their environment, run by ``make test-environments``."""
