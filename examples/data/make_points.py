"""Writes a folder of CSV files: points of two classes around two centres."""

import random
import sys
from pathlib import Path

random.seed(7)
folder = Path(sys.argv[1])
folder.mkdir(exist_ok=True)
for part in range(10):
    rows = []
    for label in [0, 1] * 50:
        centre = 1 if label else -1
        rows.append(f"{random.gauss(centre, 0.5):.4f},{random.gauss(centre, 0.5):.4f},{label}\n")
    (folder / f"part {part:02d}.csv").write_text("".join(rows))
