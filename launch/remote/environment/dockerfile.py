"""The images that a Dockerfile builds on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

__all__ = ["FROM", "bases"]

FROM = re.compile(r"\s*FROM\s+(?:--\S+\s+)*(?P<image>\S+)(?:\s+AS\s+(?P<stage>\S+))?\s*", re.IGNORECASE)
"""A line that begins a stage."""


def bases(lines: Iterable[str]) -> Iterator[str]:
    """Yield the images that a Dockerfile names, without its own stages and those named by a variable.

    >>> list(bases(["FROM --platform=linux/amd64 a.io/base:1 AS one", "FROM one", "FROM $BASE", "RUN x"]))
    ['a.io/base:1']
    """
    stages = {"scratch"}
    for line in lines:
        found = FROM.fullmatch(line)
        if found:
            if found["image"].lower() not in stages and "$" not in found["image"]:
                yield found["image"]
            stages.add((found["stage"] or "").lower())
