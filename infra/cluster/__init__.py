"""The resources of a training cluster: each module makes one part of it with Pulumi."""
