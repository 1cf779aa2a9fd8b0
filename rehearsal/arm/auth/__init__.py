"""Who sends a request to the emulated Azure, and what they may do."""
