"""What a job's ranks run in: read from a job file, an option or an SDK's class, and what a head is asked for."""
