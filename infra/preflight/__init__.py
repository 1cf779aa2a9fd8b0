"""What Azure offers, grants and charges for a cluster: asked and decided before, looked through after."""
