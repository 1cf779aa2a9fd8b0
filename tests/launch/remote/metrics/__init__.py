"""Metrics of a head's records, and their service."""
