"""A small network on scikit-learn's digits with PyTorch and Horovod, started as an MPI job."""

import argparse
import json
import socket

import horovod.torch as hvd
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

TRAIN = 1440


def main() -> None:
    """One rank's whole life."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--epochs", type=int, default=10)
    options.add_argument("--batch", type=int, default=60, help="images of one rank in one step")
    args = options.parse_args()

    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(hvd.rank())  # different weights, which the broadcast has to make equal
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())
    device = "cuda" if torch.cuda.is_available() else "cpu"

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images = torch.tensor(images[order] / 16, dtype=torch.float32, device=device)
    labels = torch.tensor(labels[order], device=device)
    mine, mine_labels = images[:TRAIN][hvd.rank() :: hvd.size()], labels[:TRAIN][hvd.rank() :: hvd.size()]

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=1e-2), named_parameters=model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    for _ in range(args.epochs):
        for start in range(0, len(mine), args.batch):
            batch = slice(start, start + args.batch)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(mine[batch]), mine_labels[batch])
            loss.backward()
            optimizer.step()

    hits = (model(images[TRAIN:]).argmax(dim=1) == labels[TRAIN:]).float().mean().item()
    seen = int(hvd.allreduce(torch.tensor(len(mine)), op=hvd.Sum))
    accuracies = hvd.allgather_object(round(hits, 4))
    nodes = hvd.allgather_object(socket.gethostname())
    if hvd.rank() == 0:
        # Equal weights on every rank give equal accuracies.
        print(json.dumps({"accuracy": min(accuracies), "images": seen, "nodes": nodes}))


if __name__ == "__main__":
    main()
