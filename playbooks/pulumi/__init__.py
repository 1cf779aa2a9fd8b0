"""Pulumi as the tasks run it: its process, its locks, what a killed one leaves."""
