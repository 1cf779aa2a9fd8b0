"""Faults on request: which there are, and what each does to Azure's API or to nodes."""
