"""The code that a job runs: planned as a snapshot here, then pushed to every node."""
