"""Whether the nodes are what their size promises: the look at each, and the bandwidth between them."""
