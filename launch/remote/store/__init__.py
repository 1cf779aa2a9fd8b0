"""Pushed code on nodes: kept by its contents, spread from the head along a tree."""
