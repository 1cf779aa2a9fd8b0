"""The merged output of a job's ranks: written once, read by every follower."""
