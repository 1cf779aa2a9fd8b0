"""What a job is: what was asked for, and from it everything that will be run, as data."""
