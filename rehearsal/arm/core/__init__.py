"""Resource manager and state for any resource types: no type is imported here, they are registered."""
