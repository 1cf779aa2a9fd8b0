"""Tasks that show what runs."""
