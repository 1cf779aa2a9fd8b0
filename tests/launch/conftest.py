"""What lies here and is no test."""

collect_ignore = ["jobfiles", "oracles"]
