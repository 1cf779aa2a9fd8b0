"""A small network on scikit-learn's digits with DistributedDataParallel, each rank started by the system.

Every rank finds RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in its environment.
"""

import argparse
import gc
import json
import os
import socket

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

TRAIN = 1440


def main() -> None:
    """One rank's whole life."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--epochs", type=int, default=8)
    options.add_argument("--batch", type=int, default=60, help="images of one rank in one step")
    args = options.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    distributed.init_process_group("nccl" if gpu else "gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images = torch.tensor(images[order] / 16, dtype=torch.float32, device=device)
    labels = torch.tensor(labels[order], device=device)
    mine, mine_labels = images[:TRAIN][rank::ranks], labels[:TRAIN][rank::ranks]

    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(args.epochs):
        for start in range(0, len(mine), args.batch):
            batch = slice(start, start + args.batch)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(mine[batch]), mine_labels[batch])
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.4f}")

    with torch.no_grad():
        hits = (model(images[TRAIN:]).argmax(dim=1) == labels[TRAIN:]).float().mean().item()
    seen = torch.tensor(len(mine), device=device)
    distributed.all_reduce(seen)
    nodes = [""] * ranks
    distributed.all_gather_object(nodes, socket.gethostname())
    if rank == 0:
        print(json.dumps({"accuracy": round(hits, 4), "images": int(seen), "nodes": nodes}))


if __name__ == "__main__":
    main()
    gc.collect()  # whatever held the process group, whose threads must end before the interpreter does
    distributed.barrier()
    distributed.destroy_process_group()
