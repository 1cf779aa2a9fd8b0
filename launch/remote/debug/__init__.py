"""What the ranks of a hanging job do: looked at on each node, collected on the head."""
