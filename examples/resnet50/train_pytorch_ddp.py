"""How many images a second ResNet-50 trains on with PyTorch's DistributedDataParallel."""

import json
import os
import socket

import torch
from benchmark import batch_of_rank, measure, read_options
from image_batches import batches
from resnet import resnet50
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel


def main():
    """One rank's whole life."""
    args = read_options(__doc__)
    gpu = torch.cuda.is_available()
    local = int(os.environ["LOCAL_RANK"])
    device = f"cuda:{local}" if gpu else "cpu"
    if gpu:
        torch.cuda.set_device(local)
        torch.backends.cudnn.benchmark = True
    distributed.init_process_group("nccl" if gpu else "gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    size = batch_of_rank(args, ranks)

    model = DistributedDataParallel(resnet50().to(device), device_ids=[local] if gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data = batches(args, size, rank, ranks, device)

    def step():
        images, labels = next(data)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if gpu:
            torch.cuda.synchronize()

    speeds = measure(step, args, size, rank, "GPU" if gpu else "CPU")
    weights = [None] * ranks
    distributed.all_gather_object(
        weights, float(sum(one.detach().double().sum() for one in model.parameters()))
    )
    nodes = [""] * ranks
    distributed.all_gather_object(nodes, socket.gethostname())
    if rank == 0:
        total = round(sum(speeds) / len(speeds) * ranks, 1)
        print(json.dumps({"img_per_s": total, "equal_weights": len({*weights}) == 1, "nodes": nodes}))
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
