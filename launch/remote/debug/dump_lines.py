"""Output that is PyTorch's own: what it prints once its flight recorder was asked to write its file.

Lines of pytorch/pytorch ``torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp``, ``FlightRecorder.cpp`` and
``FlightRecorderDetail.hpp``, 2.6 to 2.15, behind the prefix of its logger (``c10/util/Logging.cpp``). At its
default level it prints "preparing to dump" and errors alone, at ``TORCH_CPP_LOG_LEVEL=INFO`` all of them.
"""

from __future__ import annotations

import re

__all__ = ["DumpLines"]

_TAGS = rb"(?:\[[\w-]+\]:)*"
_PREFIX = (
    _TAGS
    + rb"\[?[IWEF]\d{3,4} [\d:.]+ +(?:\d+ +)?(?:ProcessGroup\w*|FlightRecorder\w*|TraceUtils)\.[ch]pp:\d+\] "
)
_TEXTS = (
    rb"Dump signal received through pipe",
    rb"ProcessGroup\w+ preparing to dump debug info",
    rb"ProcessGroup\w+ dumping \w+ trace to ",
    rb"Dumping Flight Recorder trace to ",
    rb"Flight Recorder (?:trace successfully dumped|dump initiated|dump already in progress)",
    rb"Writing Flight Recorder debug info to ",
    rb"Finished writing (?:Flight Recorder|NCCLPG) debug info to ",
    rb"Error (?:opening file for writing|writing|flushing) (?:Flight Recorder|NCCLPG) debug info",
)
_LINE = re.compile(_PREFIX + rb"(?:\[PG [^\]]*\] ?)?(?:" + rb"|".join(_TEXTS) + rb")")
_BEGIN = re.compile(_TAGS + rb"(?:\[[\w-]*\]?|\[?[IWEF]\d{0,4}|\[?[IWEF]\d{3,4} .*)?")
"""What an unfinished line of PyTorch's may be, as far as it goes."""
_LONGEST = 4096
_STREAMS = 1 << 16


class DumpLines:
    """Separates those lines from a rank's other output, which comes in pieces that cut lines anywhere."""

    def __init__(self) -> None:
        self._begun: dict[tuple[int, int], bytes] = {}
        """By rank and stream, the beginning of a line that may be one of them."""

    def has_more(self, rank: int, stream: int, data: bytes) -> bool:
        """Return whether output holds anything beside such lines. A line's beginning that may become one of
        them counts once it has not."""
        *lines, last = re.split(rb"[\r\n]", self._begun.pop((rank, stream), b"") + data)
        if last and len(last) < _LONGEST and len(self._begun) < _STREAMS and _BEGIN.fullmatch(last):
            self._begun[rank, stream] = last
        elif last:
            return True
        return any(line.strip() and not _LINE.match(line) for line in lines)
