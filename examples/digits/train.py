"""Trains a small network on the digits with PyTorch's DistributedDataParallel.

Every process needs RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, whoever sets them: the job
launcher (one process per GPU), ``torchrun`` or ``python -m torch.distributed.launch``. Without any of them
it trains alone.
"""

import argparse
import gc
import os
import socket
import time

import digits
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def network() -> nn.Module:
    """A few thousand weights: enough for 8 x 8 pixels."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def main() -> None:
    """One rank's whole life."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--epochs", type=int, default=10)
    options.add_argument("--global-batch", type=int, default=240, help="split over all ranks")
    options.add_argument("--learning-rate", type=float, default=1e-2)
    options.add_argument(
        "--local-rank", "--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", "0"))
    )
    args = options.parse_args()

    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "6105"}
    if "RANK" not in os.environ:
        os.environ.update(alone)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", args.local_rank) if gpu else torch.device("cpu")
    distributed.init_process_group("nccl" if gpu else "gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()

    images, labels, test_images, test_labels = (torch.from_numpy(part).to(device) for part in digits.load())
    data = TensorDataset(images, labels)
    sampler = DistributedSampler(data, ranks, rank, seed=0)
    batches = DataLoader(data, batch_size=max(1, args.global_batch // ranks), sampler=sampler)
    digits.say(f"rank {rank} of {ranks} on {socket.gethostname()}: {len(sampler)} images, {device}")

    model = DistributedDataParallel(network().to(device), device_ids=[args.local_rank] if gpu else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    started = time.monotonic()
    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)
        for image, label in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(image), label)
            loss.backward()
            optimizer.step()
        if rank == 0 and (epoch % 5 == 0 or epoch == args.epochs):
            digits.say(f"epoch {epoch}: loss {loss.item():.4f}")

    if rank == 0:
        with torch.no_grad():
            hits = model.module(test_images).argmax(dim=1) == test_labels
        folder = digits.report(hits.float().mean().item(), time.monotonic() - started, ranks, args.epochs)
        torch.save(model.module.state_dict(), folder / "model.pt")


if __name__ == "__main__":
    main()
    gc.collect()  # whatever held the process group, whose threads must end before the interpreter does
    distributed.barrier()
    distributed.destroy_process_group()
