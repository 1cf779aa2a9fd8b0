"""How many images a second ResNet-50 trains on with PyTorch and Horovod."""

import json
import socket

import horovod.torch as hvd
import torch
from benchmark import batch_of_rank, measure, read_options
from image_batches import batches
from resnet import resnet50
from torch import nn


def main():
    """One rank's whole life."""
    args = read_options(__doc__)
    hvd.init()
    gpu = torch.cuda.is_available()
    device = f"cuda:{hvd.local_rank()}" if gpu else "cpu"
    if gpu:
        torch.cuda.set_device(hvd.local_rank())
        torch.backends.cudnn.benchmark = True
    size = batch_of_rank(args, hvd.size())

    model = resnet50().to(device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), named_parameters=model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    data = batches(args, size, hvd.rank(), hvd.size(), device)

    def step():
        images, labels = next(data)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if gpu:
            torch.cuda.synchronize()

    speeds = measure(step, args, size, hvd.rank(), "GPU" if gpu else "CPU")
    weights = hvd.allgather_object(float(sum(one.detach().double().sum() for one in model.parameters())))
    nodes = hvd.allgather_object(socket.gethostname())
    if hvd.rank() == 0:
        total = round(sum(speeds) / len(speeds) * hvd.size(), 1)
        print(json.dumps({"img_per_s": total, "equal_weights": len({*weights}) == 1, "nodes": nodes}))


if __name__ == "__main__":
    main()
