"""Figures the project claims, measured beside its peers, in one run, on rehearsed nodes."""
