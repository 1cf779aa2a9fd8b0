"""The code that a job runs: planned as a snapshot here, then brought to every node."""
