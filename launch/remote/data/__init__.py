"""Data of jobs: brought from storage to the nodes once, and their outputs to storage."""
