"""A job's files on their way to the operator: from each node, by way of the head."""
