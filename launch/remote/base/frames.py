"""Frames between supervisor and runners, and from the head to the operator; the channel that carries them.

A frame is a type (one byte), a length (four bytes, big-endian) and a payload. Payloads between supervisor and
runner are bencoded rather than JSON: importing :mod:`json` takes longer than starting the interpreter, and
every rank under MPI has a runner of its own.
"""

from __future__ import annotations

import os
import time
from _struct import Struct  # struct is one more file for each rank to read

from launch.remote.base.files import write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from launch.remote.login import Login

__all__ = [
    "Decoder",
    "FrameChannel",
    "ProtocolError",
    "frame",
    "hello_words",
    "pack",
    "send_answer",
    "unpack",
]

# Types of frames; the fields of each are in launch.remote.base.payloads.

HELLO = b"H"
"""Runner: its introduction."""
SPEC = b"S"
"""Supervisor: what to run; encrypted for mpirun's runners, see :mod:`launch.remote.base.encryption`."""
READY = b"Y"
"""Runner: slots are held, checks have passed, no rank has started."""
GO = b"G"
"""Supervisor: every runner is ready, start the ranks. By rank, the variables known only now."""
STARTED = b"R"
"""Runner: all its ranks are running."""
OUT = b"O"
"""Runner: output of a rank, or of the setup line as rank -1 (:data:`OUTPUT` header, bytes).
On the operator's channel: one :data:`RECORD`."""
NOTE = b"N"
"""Runner: amount of a rank's output that is missing."""
TAIL = b"W"
"""Runner, before EXIT: last bytes of a rank with output left out (:data:`OUTPUT` header, bytes)."""
EXIT = b"E"
"""Runner: one rank ended."""
FAILED = b"F"
"""Runner: no rank was started."""
BUSY = b"Q"
"""Runner: other jobs hold some of its slots."""
HELD = b"L"
"""Runner: slots are held; the checks before READY may take a while."""
HEALTH = b"A"
"""Runner: what a look at its node found."""
LOOK_MARK = b"\0"
"""Around the answer of the command ``look``: a node's loader and libraries may print to stderr beside it."""
DONE = b"D"
"""Runner: its ranks' processes have ended."""
EVICTION = b"V"
"""Runner: Azure has given its node notice, or has withdrawn the notice."""
SAMPLE = b"M"
"""Runner, each second while its ranks run: what they and the node use, and what their lines hold."""
STACKS = b"Z"
"""Runner: a piece of its report on its ranks, the JSON of ``NodeFacts``
(:mod:`launch.remote.debug.debug_records`)."""
DEBUG = b"K"
"""Supervisor: report what the ranks do."""
STOP = b"T"
"""Supervisor: end every rank."""
BEAT = b"B"
"""Either way: sign of life."""
JOB = b"J"
"""Operator's channel: the supervisor has the job; where the job is followed, also its nodes' names and number
of ranks (JSON)."""
STATE = b"C"
"""Operator's channel: the job's state.json (JSON)."""
SAMPLES = b"P"
"""Operator's channel: the newest samples of a job, see :mod:`launch.remote.sample.watch_samples`."""

OUTPUT = Struct("!iB")
"""Rank, stream (1 stdout, 2 stderr)."""
RECORD = Struct("!diiBI")
"""One record of the stream: time, rank (-1: the launcher), node index, stream (1 stdout, 2 stderr,
:data:`NOTICE`), length of what follows."""
NOTICE = 3
"""Stream number of a notice about a rank's output, in the place of stdout or stderr."""

HEADER = Struct("!cI")
"""Type and length of a frame."""
_END = ord("e")
_LIMIT = 64 * 1024 * 1024
_DEEPEST = 16
"""Maximum nesting of lists and dicts; actual payloads have 5."""
_READ, _WRITE = 262144, 65536
"""Bytes of a channel read or written at once."""
_DIGITS = 19
"""Maximum digits of a number, because the time to parse one grows with their square."""


class ProtocolError(Exception):
    """The other side does not speak this protocol."""


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    """Return one frame, ready to send."""
    return HEADER.pack(kind, len(payload)) + payload


def send_answer(kind: bytes, payload: bytes = b"") -> None:
    """Write one frame to stdout. Raise BrokenPipeError when nobody reads stdout any more."""
    write_all(1, frame(kind, payload))


class Decoder:
    """Decoder of a byte stream into frames of at most ``limit`` bytes.

    >>> decoder = Decoder()
    >>> decoder.feed(frame(BEAT)[:3]), decoder.feed(frame(BEAT)[3:] + frame(STOP, b"x"))
    ([], [(b'B', b''), (b'T', b'x')])
    """

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return the frames that ``data`` completes. Raise :class:`ProtocolError` for a longer one than the
        limit."""
        buffer = self._buffer
        buffer += data
        frames = []
        start = 0
        while len(buffer) - start >= HEADER.size:
            kind, length = HEADER.unpack_from(buffer, start)
            if length > self._limit:
                raise ProtocolError(f"a frame of {length} bytes")
            end = start + HEADER.size + length
            if len(buffer) < end:
                break
            frames.append((kind, bytes(buffer[start + HEADER.size : end])))
            start = end
        del buffer[:start]
        return frames


class FrameChannel:
    """Frames to and from another process, over two descriptors that never block; ``longest`` is the maximum
    bytes of a frame that comes, ``login`` what may come before the first, of a node's shell."""

    def __init__(self, reading: int, writing: int, longest: int = _LIMIT, login: Login | None = None) -> None:
        self.reading, self.writing, self.login = reading, writing, login
        self.is_open = True
        """Whether frames can come."""
        self.is_cut = False
        """Whether frames cannot be sent any more; some may still come."""
        self.last_heard = time.monotonic()
        self.received = 0
        """Bytes that the last :meth:`receive` has read."""
        self._decoder = Decoder(longest)
        self._unsent = bytearray()
        for end in (reading, writing):
            os.set_blocking(end, False)

    @property
    def unsent(self) -> int:
        """Bytes that wait for the other side to read."""
        return len(self._unsent)

    def send(self, kind: bytes, fields: Mapping[str, object] | None = None) -> None:
        """Send one frame, or as much of it as the channel takes now; :meth:`flush` sends the rest."""
        self.send_payload(kind, pack(fields) if fields is not None else b"")

    def send_payload(self, kind: bytes, payload: bytes) -> None:
        """Send one frame whose payload is packed, or encrypted, already."""
        self.queue(frame(kind, payload))
        self.flush()

    def queue(self, whole_frames: bytes) -> None:
        """Keep frames for the next :meth:`flush`."""
        self._unsent += whole_frames

    def flush(self) -> None:
        """Send as much of what waits as the channel takes; drop it once nobody can get it."""
        while self._unsent and self.is_open and not self.is_cut:
            try:
                sent = os.write(self.writing, self._unsent[:_WRITE])
            except BlockingIOError:
                return
            except OSError:
                self.is_cut = True
                break
            del self._unsent[:sent]
        self._unsent.clear()

    def receive(self) -> list[tuple[bytes, bytes]]:
        """Return the frames that came; set :attr:`is_open` to False at the channel's end. Raise
        :class:`ProtocolError`."""
        try:
            data = os.read(self.reading, _READ)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        self.received = len(data)
        if not data:
            self.is_open = False
            return []
        self.last_heard = time.monotonic()
        return self._decoder.feed(self.login.feed(data) if self.login else data)


def pack(value: Any) -> bytes:
    """Return ``value`` (int, str, list, dict with str keys) bencoded; bytes other than UTF-8 survive.

    >>> pack({"rank": 3, "argv": ["a b", "é"]})
    b'd4:ranki3e4:argvl3:a b2:\\xc3\\xa9ee'
    """
    if isinstance(value, int):
        return b"i%de" % value
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogateescape")
        return b"%d:%s" % (len(data), data)
    if isinstance(value, dict):
        return b"d%se" % b"".join(pack(key) + pack(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return b"l%se" % b"".join(map(pack, value))
    raise TypeError(f"{type(value).__name__} cannot be packed")


def unpack(data: bytes) -> Any:
    """Return the value that :func:`pack` has encoded.

    >>> unpack(pack({"rank": 3, "argv": ["a b", "é"]}))
    {'rank': 3, 'argv': ['a b', 'é']}

    Raise :class:`ProtocolError` for anything else.
    """
    try:
        value, end = _unpack(data, 0, 0)
    except (IndexError, ValueError) as error:
        raise ProtocolError(f"not bencoded: {data[:40]!r}") from error
    if end != len(data):
        raise ProtocolError(f"{len(data) - end} bytes too many")
    return value


def _unpack(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    kind = data[at : at + 1]
    if kind == b"i":
        return _number(data, at + 1, b"e")
    if kind in (b"l", b"d"):
        if depth == _DEEPEST:
            raise ProtocolError(f"more than {_DEEPEST} lists within each other")
        items = []
        at += 1
        while data[at] != _END:
            item, at = _unpack(data, at, depth + 1)
            items.append(item)
        if kind == b"l":
            return items, at + 1
        keys, values = items[::2], items[1::2]
        if len(keys) != len(values) or not all(isinstance(key, str) for key in keys):
            raise ProtocolError("a dict needs a string and a value for each entry")
        return dict(zip(keys, values)), at + 1  # noqa: B905  equal lengths, and Python 3.8 has no strict
    size, at = _number(data, at, b":")
    if not 0 <= size <= len(data) - at:
        raise ProtocolError("cut short")
    return data[at : at + size].decode("utf-8", "surrogateescape"), at + size


def _number(data: bytes, at: int, closing: bytes) -> tuple[int, int]:
    end = data.index(closing, at, at + _DIGITS + 2)
    digits = data[at + 1 : end] if data[at : at + 1] == b"-" else data[at:end]
    if not digits.isdigit():
        raise ProtocolError(f"not a number: {data[at:end]!r}")
    return int(data[at:end]), end + 1


def hello_words(hello: Mapping[str, object]) -> bytes:
    """Return the bytes that a HELLO's proof covers: rank, local rank, node and pid."""
    return pack({name: hello[name] for name in ("rank", "local_rank", "node", "pid")})
