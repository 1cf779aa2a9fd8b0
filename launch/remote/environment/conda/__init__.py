"""Packages of conda's channels, which the head solves and installs at an environment's final path."""
