"""A small network on scikit-learn's digits with DeepSpeed's ZeRO stage 1, started as an MPI job.

DeepSpeed's own launcher is not used: ``init_distributed`` finds what the job has set, or asks mpi4py.
"""

import argparse
import gc
import json
import socket

import deepspeed
import numpy as np
import torch
from deepspeed import comm
from sklearn.datasets import load_digits
from torch import distributed, nn

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
    if not gpu:  # on processors alone DeepSpeed would first compile a reduction of its own, on every node
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("nccl" if gpu else "gloo")
    rank, ranks = comm.get_rank(), comm.get_world_size()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    engine, _, _, _ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        config={
            "train_micro_batch_size_per_gpu": args.batch,
            "optimizer": {"type": "Adam", "params": {"lr": 1e-2, "torch_adam": True}},
            "zero_optimization": {"stage": 1},
        },
    )

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images = torch.tensor(images[order] / 16, dtype=torch.float32, device=engine.device)
    labels = torch.tensor(labels[order], device=engine.device)
    mine, mine_labels = images[:TRAIN][rank::ranks], labels[:TRAIN][rank::ranks]
    for _ in range(args.epochs):
        for start in range(0, len(mine), args.batch):
            batch = slice(start, start + args.batch)
            loss = nn.functional.cross_entropy(engine(mine[batch]), mine_labels[batch])
            engine.backward(loss)
            engine.step()

    with torch.no_grad():
        hits = (engine(images[TRAIN:]).argmax(dim=1) == labels[TRAIN:]).float().mean().item()
    seen = torch.tensor(len(mine), device=engine.device)
    comm.all_reduce(seen)
    nodes: list[str] = [""] * ranks
    distributed.all_gather_object(nodes, socket.gethostname())
    if rank == 0:
        print(json.dumps({"accuracy": round(hits, 4), "images": int(seen), "nodes": nodes}))


if __name__ == "__main__":
    main()
    gc.collect()  # whatever held the process group, whose threads must end before the interpreter does
    distributed.barrier()
    distributed.destroy_process_group()
