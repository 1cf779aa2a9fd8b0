"""How diabetes goes on within a year (scikit-learn's set), a regression with DistributedDataParallel.

The job runs ``python -m torch.distributed.launch`` once on every node. With ``--use_env`` the ranks find
LOCAL_RANK in their environment; without it they get ``--local-rank`` too, as scripts of old expect.
"""

import argparse
import gc
import json
import os
import socket

import torch
from sklearn.datasets import load_diabetes
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """One rank's whole life."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--epochs", type=int, default=50)
    options.add_argument("--local-rank", "--local_rank", type=int, default=None)
    args = options.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    local_rank = int(os.environ["LOCAL_RANK"]) if args.local_rank is None else args.local_rank
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if gpu else torch.device("cpu")
    distributed.init_process_group("nccl" if gpu else "gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()

    people, progress = load_diabetes(return_X_y=True)
    people = torch.tensor(people / people.std(axis=0), dtype=torch.float32, device=device)
    progress = torch.tensor((progress - progress.mean()) / progress.std(), dtype=torch.float32, device=device)
    model = DistributedDataParallel(nn.Linear(10, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    losses = []
    for _ in range(args.epochs):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(people[rank::ranks]).squeeze(1), progress[rank::ranks])
        loss.backward()
        optimizer.step()
        over_all = loss.detach().clone()
        distributed.all_reduce(over_all)
        losses.append(round(over_all.item() / ranks, 4))

    result: list[tuple[str, int]] = [("", 0)] * ranks
    distributed.all_gather_object(result, (socket.gethostname(), local_rank))
    if rank == 0:
        nodes, local_ranks = zip(*result, strict=True)
        print(json.dumps({"losses": losses[:: args.epochs - 1], "nodes": nodes, "local_rank": local_ranks}))


if __name__ == "__main__":
    main()
    gc.collect()  # whatever held the process group, whose threads must end before the interpreter does
    distributed.barrier()
    distributed.destroy_process_group()
