"""A stack's settings: read and checked as a whole before anything is created."""
