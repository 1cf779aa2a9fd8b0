"""The Instance Metadata Service inside every emulated network."""
