"""The rate limit of a rank's output to the head: above the rate, whole lines are left out.

The rank's own log has everything. The stream on the head is for people, and for all ranks together: a rank
that prints 100 MB/s must not fill the stream, nor wait for it.
"""

from __future__ import annotations

from launch.remote.base import frames

__all__ = ["LAST_BYTES", "LastBytes", "Outlet", "RecentOutput"]

LAST_BYTES = 4096
"""Bytes of each rank's output that are kept for its last lines."""

_LONGEST_LINE = 1 << 20
"""Maximum bytes of a line that are forwarded. Up to this limit a begun line is forwarded to its end, above
the rate if necessary: the excess is saved afterwards."""
_PAUSE = 1.0
"""Seconds' worth of the rate that must be available again before lines are forwarded, so that a run of lines
follows one notice, not a line here and there."""


class LastBytes:
    r"""The last bytes of a rank's output, by lines: a line begun on one stream stays whole although lines of
    the other come between.

    >>> last = LastBytes()
    >>> for stream, data in (1, b"loss: "), (2, b"careful\n"), (1, b"0.5\nend"), (2, b"so"):
    ...     last.add(stream, data)
    >>> last.data
    b'careful\nloss: 0.5\nend\nso'
    """

    def __init__(self, data: bytes = b"") -> None:
        self._lines = data
        self._begun: dict[int, bytes] = {}
        """By stream, an unfinished last line; the stream written last is the last key."""

    def add(self, stream: int, data: bytes) -> None:
        """Add the rank's output on a stream."""
        begun = self._begun.pop(stream, b"")
        if begun:
            data = begun + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._lines = (self._lines + data[:end])[-LAST_BYTES:]
        if end < len(data):
            self._begun[stream] = data[end:][-LAST_BYTES:]

    @property
    def data(self) -> bytes:
        """At most :data:`LAST_BYTES`: finished lines, then unfinished ones."""
        return (self._lines + b"\n".join(self._begun.values()))[-LAST_BYTES:]


class RecentOutput:
    """The newest output of a rank, for its samples: a rank that prints much costs no more."""

    def __init__(self, now: float) -> None:
        self.last = now
        self._new: dict[int, bytes] = {}

    def add(self, stream: int, data: bytes, now: float, *, is_new: bool = True) -> None:
        """Keep the end of what a stream has brought; ``is_new`` is whether that ends a silence."""
        if is_new:
            self.last = now
        self._new[stream] = (self._new.get(stream, b"") + data[-LAST_BYTES:])[-LAST_BYTES:]

    def take(self) -> dict[int, bytes]:
        """Return the newest output of each stream since the last call, at most ``LAST_BYTES`` each."""
        new, self._new = self._new, {}
        return new


class Outlet:
    """Filter of one rank's output to the head: bytes of stdout (1) and stderr (2) go in, frames come out.

    ``log`` is the name of the rank's log, for notices; ``rate`` is in bytes per second, ``burst`` the bytes
    that a rank may print at once after a pause. Times are by one monotonic clock, in seconds.
    """

    def __init__(self, rank: int, log: str, rate: int, burst: int, now: float) -> None:
        self._rank, self._log, self._rate, self._burst = rank, log, rate, burst
        self._tokens, self._filled, self._taken = float(burst), now, now
        self._over = False
        self._half: dict[int, int] = {}
        """Streams whose last line is unfinished, with the bytes forwarded of that line."""
        self._cut: set[int] = set()
        """Streams whose last line was left out in part."""
        self._returned: set[int] = set()
        """Streams whose last byte was a carriage return: a line feed next does not end a second line."""
        self._bytes = self._lines = 0
        self._has_left_out = False
        self._lost = 0
        self._why = ""
        self._frames = bytearray()
        self._piece = bytearray()
        self._stream = 0
        self._tail = LastBytes()

    @property
    def size(self) -> int:
        """Number of bytes that wait to be sent."""
        return len(self._frames) + len(self._piece)

    @property
    def is_modest(self) -> bool:
        """Whether the rank has printed so little lately that other ranks must have filled the channel."""
        return not self._over and self._tokens > self._burst / 2

    def take(self, stream: int, data: bytes, now: float, has_room: bool = True) -> None:
        """Take the rank's output; leave all of it out when the channel to the head has no room."""
        self._tail.add(stream, data)
        self._taken = now
        self.tick(now, has_room)
        if not self._over:
            if stream in self._cut:
                end = _first_end(data)
                self._leave_out(stream, data[:end] if end else data)
                data = data[end:] if end else b""
            if self._bytes and data:
                self._notice()
            if has_room and len(data) <= self._tokens:
                self._pass_lines(stream, data)
                return
            end = _last_end(data, int(self._tokens)) if has_room else 0
            self._pass_lines(stream, data[:end])
            data = data[end:]
            self._over = True
            self._tokens = min(0.0, self._tokens)  # a pause follows, with or without a long line
        if stream in self._half:
            end = _first_end(data) or len(data)
            self._pass_lines(stream, data[:end])
            data = data[end:]
        self._leave_out(stream, data)

    def tick(self, now: float, has_room: bool = True) -> None:
        """Update the allowance to the time ``now``; report what was left out once there is room again."""
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        if self._over:
            self._over = not (has_room and self._tokens >= min(self._burst, self._rate * _PAUSE))
        at_a_line = not self._cut or now - self._taken > _PAUSE
        if self._bytes and not self._over and at_a_line:
            self._notice()

    def logged(self, lost: int, why: str) -> None:
        """Count ``lost`` bytes that could not be written to the rank's log, because of ``why``."""
        if lost and not self._why:
            self._why = why
            self._report(why=why)
        self._lost += lost
        if self._lost and not lost:
            self._report_lost()

    @property
    def gap(self) -> bytes:
        """Note for the log about the bytes it lacks, to precede what follows them."""
        if not self._lost:
            return b""
        return f"\n[{self._lost} bytes could not be written here: {self._why}]\n".encode()

    def frames(self) -> bytes:
        """Return everything that waits to be sent, as frames."""
        self._close_piece()
        data = bytes(self._frames)
        self._frames.clear()
        return data

    def end(self) -> None:
        """Report at the rank's end what was left out, and its last bytes if the head lacks some output."""
        if self._bytes:
            self._notice()
        if self._lost:
            self._report_lost()
        if self._has_left_out:
            self._has_left_out = False
            self._add(frames.TAIL, frames.OUTPUT.pack(self._rank, 0) + self._tail.data)

    def _pass_lines(self, stream: int, data: bytes) -> None:
        """Forward data, but at most :data:`_LONGEST_LINE` of each line."""
        while self._half.get(stream, 0) + len(data) > _LONGEST_LINE:
            end = _first_end(data) or len(data)
            room = _LONGEST_LINE - self._half.get(stream, 0)
            is_whole = len(data[:end].rstrip(b"\r\n")) <= room
            self._pass(stream, data[: end if is_whole else room])
            if not is_whole:
                self._leave_out(stream, data[room:end])
                if data[end - 1 : end] not in b"\r\n":
                    return
                self._notice()
            data = data[end:]
        self._pass(stream, data)

    def _pass(self, stream: int, data: bytes) -> None:
        if not data:
            return
        self._tokens -= len(data)
        if data[-1:] in b"\r\n":
            self._half.pop(stream, None)
        else:
            begun = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
            self._half[stream] = len(data) - begun + (0 if begun else self._half.get(stream, 0))
        (self._returned.add if data[-1:] == b"\r" else self._returned.discard)(stream)
        if stream != self._stream:
            self._close_piece()
            self._stream = stream
        self._piece += data

    def _leave_out(self, stream: int, data: bytes) -> None:
        if not data:
            return
        self._has_left_out = True
        self._half.pop(stream, None)  # the forwarded part of a line stays without an end
        self._bytes += len(data)
        self._lines += data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
        if stream in self._returned and data[:1] == b"\n":
            self._lines -= 1
        (self._cut.discard if data[-1:] in b"\r\n" else self._cut.add)(stream)
        (self._returned.add if data[-1:] == b"\r" else self._returned.discard)(stream)

    def _notice(self) -> None:
        self._report(bytes=self._bytes, lines=self._lines, why=self._why)
        self._bytes = self._lines = 0

    def _report_lost(self) -> None:
        self._report(lost=self._lost, why=self._why)
        self._lost, self._why = 0, ""

    def _report(self, bytes: int = 0, lines: int = 0, lost: int = 0, why: str = "") -> None:
        fields = {"rank": self._rank, "log": self._log, "bytes": bytes, "lines": lines}
        self._add(frames.NOTE, frames.pack(dict(fields, lost=lost, why=why)))

    def _add(self, kind: bytes, payload: bytes) -> None:
        self._close_piece()
        self._frames += frames.frame(kind, payload)

    def _close_piece(self) -> None:
        if self._piece:
            header = frames.OUTPUT.pack(self._rank, self._stream)
            self._frames += frames.frame(frames.OUT, header + self._piece)
            self._piece = bytearray()


def _first_end(data: bytes) -> int:
    r"""Return the end of the first line of ``data``; 0 when it is unfinished.

    >>> _first_end(b"a\nb\n"), _first_end(b"10%\r20%"), _first_end(b"a\r\nb"), _first_end(b"a")
    (2, 4, 3, 0)
    """
    feed, back = data.find(b"\n"), data.find(b"\r")
    if back < 0 or 0 <= feed < back:
        return feed + 1
    return back + 1 + (data[back + 1 : back + 2] == b"\n")


def _last_end(data: bytes, limit: int) -> int:
    r"""Return the end of the last line that ends within ``limit`` bytes; 0 when none does.

    >>> _last_end(b"a\nb\nc", 9), _last_end(b"a\nb\n", 3), _last_end(b"a\r\nb", 2), _last_end(b"abc", 2)
    (4, 2, 0, 0)
    """
    end = max(data.rfind(b"\n", 0, max(0, limit)), data.rfind(b"\r", 0, max(0, limit))) + 1
    if end and data[end - 1 : end + 1] == b"\r\n":
        return _last_end(data, end - 1)
    return end
