"""A small network on scikit-learn's digits with PyTorch Lightning.

Without LOCAL_RANK in its environment Lightning itself starts the processes of each node (``job.yml``); with
it the system has done so (``per-process.yml``).
"""

import gc
import json
import socket
from argparse import ArgumentParser

import lightning
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import distributed, nn
from torch.utils.data import DataLoader, TensorDataset

TRAIN = 1440


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
    options.add_argument("--num_nodes", type=int, default=1)
    options.add_argument("--gpus", type=int, default=1, help="processes on each node")
    args = options.parse_args()

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
        devices=args.gpus,
        strategy="ddp",
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
