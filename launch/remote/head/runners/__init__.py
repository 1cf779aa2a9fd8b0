"""The head's side of the runners: how they start, their channels, what they report."""
