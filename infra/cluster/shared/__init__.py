"""Kinds of shared storage: one module a kind, with its settings, resources, mount and cost."""
