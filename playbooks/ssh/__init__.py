"""The only way to a node: one pinned connection, many at once, and code sent over them."""
