"""Logistic regression on scikit-learn's breast cancer set; rank and device come as arguments.

The job file writes ``--local_rank $LOCAL_RANK``: each process is given its own number.
"""

import argparse
import gc
import json
import socket

import torch
from sklearn.datasets import load_breast_cancer
from torch import distributed, nn


def main() -> None:
    """One rank's whole life."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rank", type=int, required=True)
    options.add_argument("--local_rank", type=int, required=True)
    options.add_argument("--note", required=True, help="any words: every rank has to get the same")
    options.add_argument("--steps", type=int, default=100)
    args = options.parse_args()

    torch.set_num_threads(1)
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", args.local_rank) if gpu else torch.device("cpu")
    distributed.init_process_group("nccl" if gpu else "gloo", rank=args.rank)
    ranks = distributed.get_world_size()

    cells, benign = load_breast_cancer(return_X_y=True)
    cells = torch.tensor((cells - cells.mean(axis=0)) / cells.std(axis=0), dtype=torch.float32, device=device)
    benign = torch.tensor(benign, dtype=torch.float32, device=device)
    train = torch.arange(len(cells), device=device) % 5 != 0  # every fifth is kept for the test
    mine, mine_benign = cells[train][args.rank :: ranks], benign[train][args.rank :: ranks]

    weights = torch.zeros(cells.shape[1] + 1, device=device, requires_grad=True)
    for step in range(args.steps):
        scores = mine @ weights[1:] + weights[0]
        loss = nn.functional.binary_cross_entropy_with_logits(scores, mine_benign, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, weights)
        distributed.all_reduce(gradient)
        with torch.no_grad():
            weights -= 1.0 / int(train.sum()) * gradient
        if args.rank == 0 and step % 25 == 0:
            print(f"step {step}: loss of rank 0 {loss.item() / len(mine):.4f}")

    with torch.no_grad():
        right = (cells[~train] @ weights[1:] + weights[0] > 0) == (benign[~train] > 0)
    found: list[dict[str, object]] = [{}] * ranks
    own = {"node": socket.gethostname(), "local_rank": args.local_rank, "note": args.note, "cells": len(mine)}
    distributed.all_gather_object(found, own)
    if args.rank == 0:
        result = {
            "accuracy": round(right.float().mean().item(), 4),
            "nodes": [each["node"] for each in found],
        }
        result |= {"images": sum(int(str(each["cells"])) for each in found)}
        result |= {name: [each[name] for each in found] for name in ("local_rank", "note")}
        print(json.dumps(result))


if __name__ == "__main__":
    main()
    gc.collect()  # whatever held the process group, whose threads must end before the interpreter does
    distributed.barrier()
    distributed.destroy_process_group()
