"""A job on its head: its place in the queue, its supervisor, its launches and its end."""
