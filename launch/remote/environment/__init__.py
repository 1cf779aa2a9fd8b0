"""Environments of jobs: made once on a job's head, and spread to its other nodes."""
