"""Pushed code on nodes: stored by content, spread from the head along a tree."""
