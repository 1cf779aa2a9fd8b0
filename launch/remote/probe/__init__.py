"""The proof of transport: what NCCL and the MPIs print about the way between nodes, and the verdict on it."""
