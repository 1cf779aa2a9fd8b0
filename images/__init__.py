"""What a node boots: which image for which size, and what cloud-init makes of it."""
