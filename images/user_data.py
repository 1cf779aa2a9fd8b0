"""A recipe's steps as cloud-init user data: the node installs it at its first boot, then reboots.

That takes minutes of every node's first boot and the vendors' servers at that moment; an image of one's own
(:mod:`images.image_builders`) takes both once.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence

from images.steps import Step
from images.templates import render

__all__ = ["FOLDER", "LIMIT", "packed", "runner", "user_data"]

FOLDER = "/usr/local/lib/ranklift/recipe"
"""On the node: where the scripts lie."""

LIMIT = 65535
"""Bytes of customData before its base64 encoding (description of osProfile in Azure's compute API)."""


def user_data(steps: Sequence[Step]) -> str:
    """Return the ``#cloud-config`` text. The steps write to ``/var/log/ranklift-recipe.log`` on the node.

    The node reboots only when all steps succeeded: one that failed stays up for inspection.
    """
    return render("user_data.yaml.j2", steps=steps, folder=FOLDER, packed=packed, runner=runner(steps))


def runner(steps: Sequence[Step]) -> str:
    """Return the script that runs the steps in order and stops at the first that fails."""
    return render("recipe.sh.j2", steps=steps, folder=FOLDER)


def packed(content: str | bytes) -> str:
    """Return a file as cloud-init's ``gz+b64`` takes it; the same text for the same content, always."""
    data = content.encode() if isinstance(content, str) else content
    return base64.b64encode(gzip.compress(data, mtime=0)).decode()
