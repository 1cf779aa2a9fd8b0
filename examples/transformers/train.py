"""A small vision transformer on scikit-learn's digits with Hugging Face's Trainer; nothing is downloaded.

Its options are the Trainer's own (``--max_steps``, ``--per_device_train_batch_size`` ...).
"""

import gc
import json
import socket

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import distributed
from torch.utils.data import Dataset
from transformers import (
    EvalPrediction,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)

TRAIN = 1440


class Digits(Dataset):
    """Images and labels as the model takes them."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": self.images[index], "labels": self.labels[index]}


def accuracy(answer: EvalPrediction) -> dict[str, float]:
    """Share of images that were told right."""
    return {"accuracy": float((answer.predictions.argmax(-1) == answer.label_ids).mean())}


def main() -> None:
    """One rank's whole life."""
    parser = HfArgumentParser(TrainingArguments, description=__doc__)
    gpu = torch.cuda.is_available()
    parser.set_defaults(use_cpu=not gpu, dataloader_pin_memory=gpu, logging_steps=10, disable_tqdm=True)
    args, _ = parser.parse_args_into_dataclasses(return_remaining_strings=True)

    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images = torch.tensor(images[order] / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    labels = torch.tensor(labels[order])

    config = ViTConfig(
        image_size=8,
        patch_size=2,
        num_channels=1,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_labels=10,
    )
    trainer = Trainer(
        ViTForImageClassification(config),
        args,
        train_dataset=Digits(images[:TRAIN], labels[:TRAIN]),
        eval_dataset=Digits(images[TRAIN:], labels[TRAIN:]),
        compute_metrics=accuracy,
    )
    trainer.train()
    found = trainer.evaluate()
    trainer.save_model()

    answer: list[tuple[str, int]] = [("", 0)] * args.world_size
    distributed.all_gather_object(answer, (socket.gethostname(), args.local_process_index))
    if trainer.is_world_process_zero():
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        nodes, local_ranks = zip(*answer, strict=True)
        result = {"accuracy": round(found["eval_accuracy"], 4), "losses": [losses[0], losses[-1]]}
        print(json.dumps(result | {"nodes": nodes, "local_rank": local_ranks}))


if __name__ == "__main__":
    main()
    gc.collect()  # whatever held the process group, whose threads must end before the interpreter does
    distributed.barrier()
    distributed.destroy_process_group()
