"""Data of jobs: how it is addressed, where the stack keeps it, and what a head is asked to bring."""
