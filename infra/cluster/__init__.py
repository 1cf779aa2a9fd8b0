"""What the program makes: a training cluster, and each of its parts in a module of its own."""

from infra.cluster.component import TrainingCluster

__all__ = ["TrainingCluster"]
