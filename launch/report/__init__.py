"""A job's report: what its time went to, how much of it trained, what would help; as text and as HTML."""
