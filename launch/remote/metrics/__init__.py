"""Metrics in Prometheus' text format: read from a head's records, written as text, served over HTTP."""
