"""What a job's nodes and ranks use and print: sampled beside the ranks, kept on the head, judged."""
