"""Tasks that show operators what runs: its nodes and ranks, how well it scales, and why it hangs."""
