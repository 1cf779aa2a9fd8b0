"""Single nodes and many: commands and code on them, their health, their jobs."""
