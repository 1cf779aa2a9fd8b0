"""Trains a small network on the digits with numpy and MPI alone: gradients are averaged by Allreduce."""

import argparse
import os
import socket
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one rank per core or GPU: threads would only compete

import digits
import numpy as np
from mpi4py import MPI

SHAPES = ((64, 128), (128,), (128, 10), (10,))


def views(flat):
    """The layers' arrays inside one flat array, so that a single Allreduce carries all gradients."""
    found, start = [], 0
    for shape in SHAPES:
        size = int(np.prod(shape))
        found.append(flat[start : start + size].reshape(shape))
        start += size
    return found


def forward(weights, images):
    """The hidden layer, and how likely each digit is."""
    hidden = np.maximum(images @ weights[0] + weights[1], 0)
    scores = hidden @ weights[2] + weights[3]
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, scores / scores.sum(axis=1, keepdims=True)


def gradients(weights, images, labels, into):
    """The sum of the cross entropy's gradients over these images, and the sum of the losses."""
    hidden, likely = forward(weights, images)
    loss = -np.log(likely[np.arange(len(labels)), labels]).sum()
    likely[np.arange(len(labels)), labels] -= 1
    back = (likely @ weights[2].T) * (hidden > 0)
    for place, value in zip(
        into, (images.T @ back, back.sum(0), hidden.T @ likely, likely.sum(0)), strict=True
    ):
        place[...] = value
    return loss


def main() -> None:
    """One rank's whole life."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--epochs", type=int, default=15)
    options.add_argument("--global-batch", type=int, default=360, help="split over all ranks")
    options.add_argument("--learning-rate", type=float, default=0.4)
    options.add_argument("--local-rank", "--local_rank", type=int, default=0, help="accepted, not needed")
    args = options.parse_args()

    world = MPI.COMM_WORLD
    rank, ranks = world.Get_rank(), world.Get_size()
    images, labels, test_images, test_labels = digits.load()
    digits.say(f"rank {rank} of {ranks} on {socket.gethostname()}: {len(images[rank::ranks])} images")

    chance = np.random.default_rng(
        0
    )  # the same on every rank, so all of them draw the same order and weights
    size = sum(int(np.prod(shape)) for shape in SHAPES)
    flat, speed, gradient = np.zeros(size), np.zeros(size), np.zeros(size + 1)
    weights = views(flat)
    for matrix in weights[::2]:
        matrix[...] = chance.normal(0, np.sqrt(2 / len(matrix)), matrix.shape)
    world.Bcast(flat)

    started = time.monotonic()
    for epoch in range(1, args.epochs + 1):
        order = chance.permutation(len(images))
        for start in range(0, len(order), args.global_batch):
            batch = order[start : start + args.global_batch]
            mine = batch[rank::ranks]
            gradient[-1] = gradients(weights, images[mine], labels[mine], views(gradient))
            world.Allreduce(MPI.IN_PLACE, gradient)
            speed = 0.9 * speed - args.learning_rate / len(batch) * gradient[:-1]
            flat += speed
        if rank == 0 and (epoch % 10 == 0 or epoch == args.epochs):
            digits.say(f"epoch {epoch}: loss {gradient[-1] / len(batch):.4f}")

    if rank == 0:
        accuracy = float((forward(weights, test_images)[1].argmax(axis=1) == test_labels).mean())
        folder = digits.report(accuracy, time.monotonic() - started, ranks, args.epochs)
        np.savez(folder / "model.npz", *weights)


if __name__ == "__main__":
    main()
