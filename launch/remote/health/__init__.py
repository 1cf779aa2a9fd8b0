"""What a node has against what its VM size promises: facts, rules over them, and the command `look`."""
