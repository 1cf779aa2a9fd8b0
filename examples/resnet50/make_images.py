"""Write a small folder as ImageNet has it: ``python make_images.py FOLDER``; squares of 32 random pixels."""

import os
import sys
from pathlib import Path

CLASSES, IMAGES, SIZE = 4, 16, 32


def main() -> None:
    """Write train/CLASS/NUMBER.ppm."""
    for label in range(CLASSES):
        folder = Path(sys.argv[1]) / "train" / f"n{label:08}"
        folder.mkdir(parents=True)
        for number in range(IMAGES):
            pixels = os.urandom(3 * SIZE * SIZE)
            (folder / f"{number}.ppm").write_bytes(b"P6 %d %d 255\n" % (SIZE, SIZE) + pixels)


if __name__ == "__main__":
    main()
