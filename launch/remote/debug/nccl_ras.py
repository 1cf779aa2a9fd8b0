"""What NCCL's RAS subsystem answers about the communicators of a job's ranks: its client's side.

Since NCCL 2.24 one process of a node listens at ``localhost:28028``, or where ``NCCL_RAS_ADDR`` says: plain
TCP, a line for each command (NVIDIA/nccl ``src/ras/client.cc``, ``client_support.cc``; NCCL User Guide,
"RAS"). It answers ``STATUS`` as text and closes the connection; since 2.28.7 as JSON, after ``SET FORMAT
json``. Older versions do not know that command, so they are asked for the text over a second connection. The
JSON of 2.28.9 lacks the comma before ``status`` in ``missing_ranks``.
"""

from __future__ import annotations

import json
import re
import socket
import time

from launch.remote.debug.bounded import NotRead, bounded, printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from launch.remote.debug.debug_records import RasRank

__all__ = ["ADDRESS", "NoRas", "RasError", "ask_ras", "parse_json", "parse_text"]

ADDRESS = "localhost:28028"
_PROTOCOL = 2
_PARSE_S = 0.3
"""Time to read an answer that came at the last moment; the largest takes a third of it."""
_LARGEST = 4 << 20
"""Bytes of an answer that are read: 300 nodes of 8 ranks have some 1.5 MB."""
_MOST = 512
_LINE, _TEXT = 160, 64
_DIGITS = 18
"""Digits of a number: larger ones fit no field of a report, and take long to read."""
_COMMUNICATOR = re.compile(r"^#\d+-\d+ \((\w+)\) (\w+)$")
_RANK = re.compile(r"^\s+Rank (\d+)\b(.*)$")
_OPERATION = re.compile(r"up to operation (\d+)")
_PROCESS = re.compile(r"process (\d+)(?: on|,) node (\S+)")
_NO_COMMA = re.compile(r'("nvml_dev": -?\d+)(\s+"status":)')


class RasError(NotRead):
    """Why nothing is known from NCCL's RAS."""


class NoRas(RasError):
    """Nothing listens: the ranks have no NCCL, or one before 2.24."""


def ask_ras(address: str, seconds: float) -> list[RasRank]:
    """Return the ranks that RAS reports, at most 512: those that do not answer first. Raise
    :class:`RasError`.

    A child asks: a name may not resolve, and anything may listen there.
    """
    shown = f"NCCL's RAS at {address[:_LINE]!r}"
    try:
        found: list[RasRank] | None = bounded(shown, lambda: _ask(address, seconds), seconds + _PARSE_S)
    except NotRead as error:
        raise RasError(str(error)) from None
    if found is None:
        raise NoRas
    return found


def _ask(address: str, seconds: float) -> list[RasRank] | None:
    """Return what RAS answers; None where nothing listens."""
    deadline = time.monotonic() + seconds
    try:
        return _ask_both(address, deadline)
    except NoRas:
        return None


def _ask_both(address: str, deadline: float) -> list[RasRank]:
    with _connect(address, deadline) as connection:
        if _command(connection, "SET FORMAT json", deadline) == "OK":
            return parse_json(_status(connection, deadline))
    with _connect(address, deadline) as connection:
        return parse_text(_status(connection, deadline))


def _connect(address: str, deadline: float) -> socket.socket:
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdecimal()) or not host:
        raise RasError(f"NCCL_RAS_ADDR = {address[:_LINE]!r} is not HOST:PORT")
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), _left(deadline))
    except ConnectionRefusedError:
        raise NoRas from None
    except (OSError, OverflowError) as error:
        raise RasError(f"NCCL's RAS at {address[:_LINE]!r}: {str(error)[:_LINE]}") from None
    try:
        _greet(connection, address, deadline)
    except BaseException:
        connection.close()
        raise
    return connection


def _greet(connection: socket.socket, address: str, deadline: float) -> None:
    answer = _command(connection, f"CLIENT PROTOCOL {_PROTOCOL}", deadline)
    if not answer.upper().startswith("SERVER PROTOCOL "):
        raise RasError(f"NCCL's RAS at {address[:_LINE]!r} answers {answer[:40]!r}")
    _command(connection, f"TIMEOUT {max(1, int(_left(deadline)) - 1)}", deadline)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise RasError("NCCL's RAS did not answer in time")
    return left


def _command(connection: socket.socket, command: str, deadline: float) -> str:
    """Return the line that answers a command; empty where the other side closes the connection instead."""
    data = b""
    try:
        connection.settimeout(_left(deadline))
        connection.sendall(command.encode() + b"\n")
        while not data.endswith(b"\n") and len(data) < _LINE:
            connection.settimeout(_left(deadline))
            piece = connection.recv(_LINE)
            if not piece:
                break
            data += piece
    except OSError as error:
        raise RasError(f"NCCL's RAS does not answer: {error}") from None
    return data.decode("utf-8", "replace").strip()


def _status(connection: socket.socket, deadline: float) -> str:
    pieces, size = [], 0
    try:
        connection.settimeout(_left(deadline))
        connection.sendall(b"VERBOSE STATUS\n")
        while size < _LARGEST:
            connection.settimeout(_left(deadline))
            piece = connection.recv(1 << 16)
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
    except OSError as error:
        raise RasError(f"NCCL's RAS does not answer: {error}") from None
    return b"".join(pieces).decode("utf-8", "replace")


def parse_json(text: str) -> list[RasRank]:
    """Return the ranks of a JSON answer, those that do not answer first. Raise :class:`RasError`."""
    try:
        try:
            found = _loaded(text)
        except json.JSONDecodeError:
            found = _loaded(_NO_COMMA.sub(r"\1,\2", text))
    except (ValueError, RecursionError) as error:
        raise RasError(f"NCCL's RAS answers what is not JSON: {str(error)[:_LINE]}") from None
    ranks: list[RasRank] = []
    try:
        for one in found["communicators"]:
            for missing in one["missing_ranks"]:
                status = missing.get("status", {})
                is_dead = bool(status.get("considered_dead"))
                ranks.append(_rank(one["hash"], missing, -1, "dead" if is_dead else "does not answer"))
        for one in found["communicators"]:
            for rank in one["ranks"]:
                count = sum(_number(number) for number in rank["collective_counts"].values())
                ranks.append(_rank(one["hash"], rank, count, _state(rank["status"])))
    except (TypeError, LookupError, ValueError, AttributeError) as error:
        raise RasError(f"NCCL's RAS answers JSON of another form: {error!r}"[:_LINE]) from None
    return ranks[:_MOST]


def _loaded(text: str) -> Any:
    return json.loads(text, parse_int=_short_int)


def _short_int(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _rank(group: object, fields: dict[str, object], operations: int, state: str) -> RasRank:
    return {
        "group": _text(group),
        "rank": _number(fields["rank"]),
        "host": _text(fields["host"]),
        "pid": _number(fields["pid"]),
        "operations": min(operations, 10**_DIGITS),
        "state": state,
    }


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= 10**_DIGITS:
        raise TypeError(f"{str(value)[:40]!r} is not a number from -1 to 10**{_DIGITS}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:40]!r} is not text")
    return printable(value[:_TEXT])


def _state(status: dict[str, object]) -> str:
    if status["abort_flag"]:
        return "aborted"
    if status["async_error"]:
        return printable(f"error {status['async_error']}"[:_TEXT])
    if status["finalize_called"] or status["destroy_flag"]:
        return "finalized"
    return "initializing" if status["init_state"] else "running"


def parse_text(text: str) -> list[RasRank]:
    """Return the ranks that the text of ``VERBOSE STATUS`` names in its errors and warnings."""
    ranks: list[RasRank] = []
    group = kind = ""
    for line in text.splitlines():
        begun = _COMMUNICATOR.match(line)
        if begun is not None:
            group, kind = begun[1][:_TEXT], begun[2][:_TEXT]
            continue
        named = _RANK.match(line)
        if named is None or not group or len(ranks) == _MOST:
            continue
        operation, process = _OPERATION.search(named[2]), _PROCESS.search(named[2])
        operations = int(operation[1][:_DIGITS]) if operation else -1
        if operation is None and "not launched any operations" in named[2]:
            operations = 0
        ranks.append(
            {
                "group": group,
                "rank": int(named[1][:9]),
                "host": printable(process[2][:_TEXT]) if process else "",
                "pid": int(process[1][:9]) if process else -1,
                "operations": operations,
                "state": "does not answer" if kind == "INCOMPLETE" else kind.lower(),
            }
        )
    return ranks
