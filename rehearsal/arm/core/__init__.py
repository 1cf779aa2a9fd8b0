"""What all emulated resource types share: the subscription, ids, models, operations."""
