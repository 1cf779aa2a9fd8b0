"""A job on its head: its turn in the queue, its supervisor, its end."""
