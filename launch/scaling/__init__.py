"""How a job's throughput grows with its nodes: the runs that measure it, their statistics, the verdict."""
