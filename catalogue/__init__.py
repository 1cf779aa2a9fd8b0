"""What is known of each Azure size, with the source of every figure."""
