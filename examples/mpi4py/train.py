"""Softmax regression on scikit-learn's digits with numpy and MPI alone: one Allreduce a step."""

import argparse
import json
import socket

import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_digits

TRAIN = 1440


def main() -> None:
    """One rank's whole life."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--learning-rate", type=float, default=1.0)
    args = options.parse_args()

    world = MPI.COMM_WORLD
    rank, ranks = world.Get_rank(), world.Get_size()
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))  # the same on every rank
    images, labels = images[order] / 16, labels[order]
    mine = slice(rank, TRAIN, ranks)
    wanted = np.eye(10)[labels[mine]]

    weights = np.zeros((64, 10))
    gradient = np.empty_like(weights)
    for _ in range(args.steps):
        scores = images[mine] @ weights
        likely = np.exp(scores - scores.max(axis=1, keepdims=True))
        likely /= likely.sum(axis=1, keepdims=True)
        world.Allreduce(images[mine].T @ (likely - wanted), gradient)
        weights -= args.learning_rate / TRAIN * gradient

    nodes = world.gather(socket.gethostname())
    images_seen = world.reduce(len(wanted))
    if rank == 0:
        hits = (images[TRAIN:] @ weights).argmax(axis=1) == labels[TRAIN:]
        result = {"accuracy": round(float(hits.mean()), 4), "images": images_seen, "nodes": nodes}
        print(json.dumps(result | {"mpi": MPI.Get_library_version().split("\n")[0].strip("\0")}))


if __name__ == "__main__":
    main()
