"""Stands for a training script."""
