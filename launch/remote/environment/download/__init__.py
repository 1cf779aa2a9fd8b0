"""What registries and package indexes answer: where they may lead, and how much they may send."""
