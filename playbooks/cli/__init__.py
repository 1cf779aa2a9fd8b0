"""What every task shares: its parser, its options, its signals, its output."""
