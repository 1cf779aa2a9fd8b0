"""Data: what is in the stack's storage, and what jobs have on their nodes."""
