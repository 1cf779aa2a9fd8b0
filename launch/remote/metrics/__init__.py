"""Metrics in Prometheus' formats: from a head's records, served as text, sent to Azure Monitor."""
