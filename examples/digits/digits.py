"""The handwritten digits of the UCI repository, as scikit-learn ships them: 1,797 images of 8 x 8 pixels.

Read straight from scikit-learn's own data file: importing all of it takes every rank a second it does
not need.
"""

import importlib.util
import json
import os
from pathlib import Path

import numpy as np

TEST_SIZE = 360


def load(seed: int = 0):
    """Training images and labels, test images and labels (pixels from 0 to 1), one split for all ranks."""
    package = importlib.util.find_spec("sklearn")
    if package is None:
        raise SystemExit("no scikit-learn, which brings the digits: pip install scikit-learn")
    file = Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    table = table[np.random.default_rng(seed).permutation(len(table))]
    images, labels = table[:, :-1] / 16, table[:, -1].astype(np.int64)
    return images[TEST_SIZE:], labels[TEST_SIZE:], images[:TEST_SIZE], labels[:TEST_SIZE]


def say(line: str) -> None:
    """Prints a line in one piece: processes that share an output must not cut into each other's."""
    os.write(1, (line + "\n").encode())


def report(accuracy: float, seconds: float, ranks: int, epochs: int) -> Path:
    """Prints the result and writes metrics.json; returns the folder for outputs."""
    say(f"test accuracy {accuracy:.4f} after {epochs} epochs on {ranks} ranks in {seconds:.1f} s")
    folder = Path(os.environ.get("RANKLIFT_OUTPUT_DIR", "outputs"))
    folder.mkdir(parents=True, exist_ok=True)
    metrics = {"test_accuracy": accuracy, "epochs": epochs, "ranks": ranks, "seconds": round(seconds, 3)}
    (folder / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
    return folder
