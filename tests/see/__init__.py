"""What operators see of jobs that run, on rehearsed nodes."""
