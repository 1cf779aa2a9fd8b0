"""Scaling that others have published, drawn behind a measurement of the same benchmark."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RESNET50", "SOURCE", "PublishedLine", "published_lines"]

RESNET50 = "resnet50"
"""The tag ``benchmark`` of job files that measure what :data:`SOURCE` did."""
SOURCE = (
    "Published: ResNet-50 by tf_cnn_benchmarks on synthetic data, 64 images a GPU, Horovod, 4 GPUs a node, "
    "plots of 2018 (github.com/msalvaris/BatchAIHorovodBenchmark, commit 0d23f48; read from the heights of "
    "their bars to within 0.13 %), against one GPU without Horovod. InfiniBand: Intel MPI 2017.3; TCP: Open "
    "MPI 3.0 with NCCL."
)


@dataclass(frozen=True, slots=True)
class PublishedLine:
    """Efficiency by number of GPUs."""

    name: str
    points: tuple[tuple[int, float], ...]
    """Number of GPUs, and throughput as a part of as many times that of one."""


_IMAGES_PER_S = {
    ("V100", 357): {
        "InfiniBand": {4: 979, 8: 1809, 16: 3405, 32: 6514},
        "TCP": {4: 1244, 8: 1247, 16: 2210, 32: 4269},
    },
    ("P100", 234): {
        "InfiniBand": {4: 863, 8: 1616, 16: 3041, 32: 5819},
        "TCP": {4: 856, 8: 1099, 16: 2000, 32: 3944},
    },
}
"""By GPU, with images per second of one, and by transport: images per second by number of GPUs."""


def published_lines(benchmark: str) -> tuple[PublishedLine, ...]:
    """Return the lines of a benchmark; none for one that nobody is known to have published.

    >>> for line in published_lines(RESNET50)[:2]:
    ...     print(line.name, f"{line.points[-1][1]:.2f}")
    V100, InfiniBand 0.57
    V100, TCP 0.37
    """
    if benchmark != RESNET50:
        return ()
    return tuple(
        PublishedLine(
            f"{gpu}, {transport}", tuple((count, value / (count * single)) for count, value in curve.items())
        )
        for (gpu, single), curves in _IMAGES_PER_S.items()
        for transport, curve in curves.items()
    )
