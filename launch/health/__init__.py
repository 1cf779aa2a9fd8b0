"""Finds the nodes and paths of a cluster that are slower than their peers, from measurements alone."""
