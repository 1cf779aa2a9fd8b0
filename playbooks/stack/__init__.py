"""The cluster as a whole: planned, made, looked after, resized and removed, and what it costs."""
