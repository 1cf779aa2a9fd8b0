"""A small network on scikit-learn's digits with PyTorch Lightning, started as an MPI job.

``set_environment_variables_for_mpi`` is the function that scripts written for Azure Machine Learning carry.
"""

import gc
import json
import os
import socket
from argparse import ArgumentParser

import lightning
import numpy as np
import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from sklearn.datasets import load_digits
from torch import distributed, nn
from torch.utils.data import DataLoader, TensorDataset

TRAIN = 1440


# fmt: off (as it stands in those scripts)
def set_environment_variables_for_mpi(num_nodes, gpus_per_node, master_port=54965):
    if num_nodes > 1:
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = os.environ["AZ_BATCH_MASTER_NODE"].split(":")
    else:
        os.environ["MASTER_ADDR"] = os.environ["AZ_BATCHAI_MPI_MASTER_NODE"]
        os.environ["MASTER_PORT"] = str(master_port)

    try:
        os.environ["NODE_RANK"] = str(int(os.environ.get("OMPI_COMM_WORLD_RANK")) // gpus_per_node)
        # additional variables
        os.environ["MASTER_ADDRESS"] = os.environ["MASTER_ADDR"]
        os.environ["LOCAL_RANK"] = os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]
        os.environ["WORLD_SIZE"] = os.environ["OMPI_COMM_WORLD_SIZE"]
    except:
        # fails when used with pytorch configuration instead of mpi
        pass


# fmt: on


class Digits(lightning.LightningModule):
    """Eight by eight pixels to ten digits."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """The loss of one batch."""
        return nn.functional.cross_entropy(self.network(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main() -> None:
    """One process's whole life."""
    options = ArgumentParser(description=__doc__)
    options.add_argument("--max_epochs", type=int, default=8)
    options.add_argument("--num_nodes", type=int, required=True)
    options.add_argument("--gpus_per_node", type=int, required=True)
    args = options.parse_args()
    set_environment_variables_for_mpi(args.num_nodes, args.gpus_per_node)

    torch.set_num_threads(1)
    lightning.seed_everything(0, verbose=False)
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images = torch.tensor(images[order] / 16, dtype=torch.float32)
    labels = torch.tensor(labels[order])

    model = Digits()
    trainer = lightning.Trainer(
        max_epochs=args.max_epochs,
        num_nodes=args.num_nodes,
        devices=args.gpus_per_node,
        strategy="ddp",
        plugins=LightningEnvironment(),  # so the variables decide, even where Lightning would ask mpi4py
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    batches = DataLoader(TensorDataset(images[:TRAIN], labels[:TRAIN]), batch_size=60, shuffle=True)
    trainer.fit(model, batches)

    with torch.no_grad():
        hits = (model.cpu().network(images[TRAIN:]).argmax(dim=1) == labels[TRAIN:]).float().mean().item()
    nodes = [""] * trainer.world_size
    distributed.all_gather_object(nodes, socket.gethostname())
    if trainer.is_global_zero:
        print(json.dumps({"accuracy": round(hits, 4), "steps": trainer.global_step, "nodes": nodes}))


if __name__ == "__main__":
    main()
    gc.collect()  # whatever held the process group, whose threads must end before the interpreter does
    distributed.barrier()
    distributed.destroy_process_group()
