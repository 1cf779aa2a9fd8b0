"""What a job's ranks run in: how it is written, and what a head is asked for."""
