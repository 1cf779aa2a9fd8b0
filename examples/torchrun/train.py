"""Three kinds of wine told apart (scikit-learn's set) with DistributedDataParallel, started by torchrun.

The job runs ``torchrun`` once on every node; torchrun starts the node's ranks and sets their variables.
"""

import gc
import json
import os
import socket

import torch
from sklearn.datasets import load_wine
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """One rank's whole life."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    distributed.init_process_group("nccl" if gpu else "gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()

    wines, kinds = load_wine(return_X_y=True)
    wines = torch.tensor((wines - wines.mean(axis=0)) / wines.std(axis=0), dtype=torch.float32, device=device)
    kinds = torch.tensor(kinds, device=device)
    train = torch.arange(len(wines), device=device) % 4 != 0  # every fourth is kept for the test
    mine, mine_kinds = wines[train][rank::ranks], kinds[train][rank::ranks]

    model = DistributedDataParallel(nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 3)).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(60):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(mine), mine_kinds)
        loss.backward()
        optimizer.step()
        if rank == 0 and epoch % 20 == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}")

    with torch.no_grad():
        hits = (model(wines[~train]).argmax(dim=1) == kinds[~train]).float().mean().item()
    seen = torch.tensor(len(mine), device=device)
    distributed.all_reduce(seen)
    nodes = [""] * ranks
    distributed.all_gather_object(nodes, socket.gethostname())
    if rank == 0:
        print(json.dumps({"accuracy": round(hits, 4), "samples": int(seen), "nodes": nodes}))


if __name__ == "__main__":
    main()
    gc.collect()  # whatever held the process group, whose threads must end before the interpreter does
    distributed.barrier()
    distributed.destroy_process_group()
