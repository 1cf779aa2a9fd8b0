"""The stream, a job's merged output: written once, read by every follower."""
