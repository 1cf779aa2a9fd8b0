"""What images hold, by the release of azhpc-images that made them."""

from __future__ import annotations

import json
from pathlib import Path

from images.os_images import MarketplaceImage, known_images

_RELEASES = json.loads((Path(__file__).parents[2] / "images/catalogue.json").read_text("utf-8"))["releases"]


def contents(image: MarketplaceImage) -> dict[str, str] | None:
    """Return the components of ``image`` with their versions, or ``None`` when they are unknown."""
    release = next((known.release for known in known_images() if known.urn == image.urn), None)
    return next((dict(row) for row in _RELEASES if row["tag"] == release), None)
