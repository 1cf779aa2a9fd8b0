"""A node's side of a job: the runner beside the ranks, and what it prepares for them."""
