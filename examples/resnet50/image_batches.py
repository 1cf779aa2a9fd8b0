"""Batches for PyTorch: random ones that never change, or images in folders as ImageNet's."""

import re
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

CLASSES = 1000


def batches(args, size, rank, ranks, device):
    """Yield images and labels for ever, ``size`` of them at once."""
    if not args.data:
        chance = torch.Generator().manual_seed(rank)
        images = torch.rand(size, 3, args.image_size, args.image_size, generator=chance).to(device)
        labels = torch.randint(CLASSES, (size,), generator=chance).to(device)
        while True:
            yield images, labels
    pictures = Pictures(Path(args.data) / "train", args.image_size)
    sampler = DistributedSampler(pictures, ranks, rank)
    loader = DataLoader(
        pictures, size, sampler=sampler, num_workers=args.workers, drop_last=True, pin_memory=device != "cpu"
    )
    if len(loader) == 0:
        raise SystemExit(f"{args.data}: {len(pictures)} images are fewer than {ranks} ranks take in a step")
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        for images, labels in loader:
            yield images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        epoch += 1


class Pictures(Dataset):
    """The images of a folder that has one folder for each class, in the order of their names."""

    def __init__(self, folder, size):
        classes = sorted(path for path in folder.iterdir() if path.is_dir())
        if not classes:
            raise SystemExit(f"{folder}: has no folder for a class")
        self.entries = [(path, label) for label, one in enumerate(classes) for path in sorted(one.iterdir())]
        self.size = size

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, number):
        path, label = self.entries[number]
        image = read_ppm(path) if path.suffix == ".ppm" else read_with_pillow(path, self.size)
        image = image.permute(2, 0, 1).float()[None] / 255
        shape = (self.size, self.size)
        return resized(image, shape)[0], label


def resized(images, shape):
    """Return the images in another height and width."""
    if tuple(images.shape[-2:]) == shape:
        return images
    return torch.nn.functional.interpolate(images, shape, mode="bilinear", align_corners=False)


def read_with_pillow(path, size):
    """Return the middle of an image of any kind that Pillow reads, by rows, columns and colours."""
    from PIL import Image

    with Image.open(path) as image:
        image.draft("RGB", (size, size))  # a large JPEG is decoded to a half or a quarter of it
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        middle = image.convert("RGB").crop((left, top, left + side, top + side)).resize((size, size))
        return torch.frombuffer(bytearray(middle.tobytes()), dtype=torch.uint8).view(size, size, 3)


def read_ppm(path):
    """Return a binary PPM image without comments, which needs no Pillow, by rows, columns and colours."""
    data = path.read_bytes()
    head = re.match(rb"P6\s+(\d+)\s+(\d+)\s+255\s", data)
    width, height = map(int, head.groups()) if head else (0, 0)
    if not head or len(data) != head.end() + width * height * 3:
        raise SystemExit(f"{path}: is not a binary PPM image of 8 bits a colour")
    pixels = bytearray(data[head.end() :])
    return torch.frombuffer(pixels, dtype=torch.uint8).view(height, width, 3)
