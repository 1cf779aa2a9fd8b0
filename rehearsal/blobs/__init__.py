"""The blob endpoint of emulated storage accounts: what Azure checks before Azurite serves a request."""
