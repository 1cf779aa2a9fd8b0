"""All output: results to stdout, progress and errors to stderr, colours on terminals alone.

Names, reasons and lines come from nodes, and whoever runs there chose them: no escape sequence of theirs
reaches a terminal, because the one function that writes passes all text through
:func:`launch.printable.for_stream`. No other module imports rich.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from launch.errors import InputError
from launch.host import Completed
from launch.nodeset import fold, ranges
from launch.printable import escaped_json, for_file, for_stream, for_terminal, takes_colours
from playbooks.cli.merged_output import merged_pieces
from playbooks.cli.table_layout import fitting, paragraphs, wrapped_lines

__all__ = [
    "age",
    "as_json",
    "ask",
    "bounded_progress",
    "cell_width",
    "clear",
    "command",
    "data",
    "error",
    "line_width",
    "log",
    "merged",
    "plain",
    "progress",
    "progress_bar",
    "result",
    "stdout_to_stderr",
    "steps",
    "table",
]

_PROSE = 110
"""Most characters of a line of prose."""
_ENDLESS = 100_000
"""Columns where there is no terminal, and for a table whose cells must stay whole: readers can wrap lines."""
_LONGEST_LINE, _MOST_LINES = 400, 1000
"""Characters and number of the texts that a node may have printed as progress."""
_REDRAW_S = 0.1
_RESET = "\x1b[0m"


def data(found: bytes) -> None:
    """Write bytes to stdout as they are."""
    _write_bytes(sys.stdout, found)


def result(text: str) -> None:
    """Print one line of result."""
    _write(sys.stdout, text + "\n")


def ask(question: str) -> bool | None:
    """Return whether the user at the terminal answers yes; None where there is no terminal."""
    # Python has no stdin where the command was started with that closed.
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    with suppress(EOFError):
        return input(for_terminal(f"{question} [y/N] ")).strip().lower() in ("y", "yes")
    return False


def progress(text: str) -> None:
    """Print one line of progress."""
    _write(sys.stderr, text + "\n")


def bounded_progress() -> Callable[[str], None]:
    """Return a :func:`progress` for texts of a node: of each the beginning in one line, and not for ever."""
    left = _MOST_LINES

    def show(text: str) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            progress(" ".join(text[:_LONGEST_LINE].split()))
        if left == 0:
            progress(f"{_MOST_LINES} lines of progress were printed; further ones are left out")

    return show


def error(failure: BaseException) -> None:
    """Print an error: what failed, on which nodes, the remedy. On a terminal its lines end between words."""
    paint, text = _painter(sys.stderr), str(failure)
    if sys.stderr.isatty():
        text = for_stream(text, sys.stderr)
        width = len if text.isascii() else cell_width
        text = wrapped_lines(text, _columns(sys.stderr), len("error: "), width, _folders_here())
    _write(sys.stderr, f"{paint('error:', '1;31')} {text}\n")


def _folders_here() -> list[str]:
    """Return the current folder and those above it whose paths have blanks, the longest first."""
    with suppress(OSError):
        here = Path.cwd()
        return [str(folder) for folder in (here, *here.parents) if " " in folder.name]
    return []


def _columns(stream: IO[str]) -> int:
    """Return the width of a terminal, which stdout need not be."""
    if "COLUMNS" not in os.environ:
        with suppress(OSError):
            if columns := os.get_terminal_size(stream.fileno()).columns:
                return columns
    return shutil.get_terminal_size().columns


def as_json(value: object, *, indent: int | None = 2) -> None:
    """Print the records of the tables for programs; without ``indent`` in one line."""
    _write(sys.stdout, escaped_json(json.dumps(plain(value), indent=indent, ensure_ascii=False)) + "\n")


def steps(lines: Sequence[str], *, json: bool) -> None:
    """Print what a command would do, a step a line; as a JSON array with ``json``."""
    if json:
        as_json(lines)
    else:
        result("\n".join(lines))


@contextmanager
def stdout_to_stderr(*, when: bool) -> Iterator[None]:
    """Have what the block and its children print on stdout go to stderr: stdout is for JSON alone."""
    if not when:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def command(argv: Sequence[str]) -> None:
    """Print a command that is about to be run here."""
    paint = _painter(sys.stderr)
    _write(sys.stderr, paint(f"$ {shlex.join(argv)}", "1") + "\n")


def line_width() -> int:
    """Return how many characters a line of prose on stdout has."""
    return min(_PROSE, shutil.get_terminal_size().columns) if sys.stdout.isatty() else _PROSE


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    rank: Sequence[str] = (),
    needed: int = 2,
    folds: str = "",
    wide: bool = False,
) -> None:
    """Print a table on stdout, without truncating any cell.

    A terminal gets the columns that fit, by importance (``rank``; default: their order), unless ``wide``;
    only cells of column ``folds`` are wrapped, at blanks. Where the ``needed`` first do not fit, each row is
    a paragraph.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[for_terminal(str(cell)).expandtabs() for cell in row] for row in rows]
    is_fitted = sys.stdout.isatty() and not wide
    console = Console(file=sys.stdout, width=None if is_fitted else _ENDLESS)
    rank = rank or columns
    kept = fitting(columns, cells, rank, needed, folds, console.width, cell_len)
    if not kept:
        _write(sys.stdout, "".join(f"{line}\n" for line in paragraphs(columns, cells, rank, console.width)))
        return
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index in kept:
        drawn.add_column(columns[index], overflow="fold", no_wrap=columns[index] != folds)
    for row in cells:
        # Text, since rich takes [red] or [link=...] in a string as markup.
        drawn.add_row(*(Text(row[index], _style(row[index])) for index in kept))
    with console.capture() as captured:
        console.print(drawn)
    # rich pads lines with spaces.
    lines = (_without_padding(line) for line in captured.get().splitlines())
    _write(sys.stdout, "".join(f"{line}\n" for line in lines if line))


def _without_padding(line: str) -> str:
    line = line.rstrip()
    return line.removesuffix(_RESET).rstrip() + _RESET if line.endswith(_RESET) else line


def cell_width(text: str) -> int:
    """Return how many cells of a terminal's line the text takes."""
    from rich.cells import cell_len

    return cell_len(text)


def clear() -> None:
    """Clear the terminal, for output that replaces what it shows."""
    sys.stdout.write("\x1b[H\x1b[2J")


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """Show a progress bar in bytes on a terminal while the block runs.

    Gives a function that updates it: what is done, bytes done, all bytes if known.
    """
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with progress.Progress(*columns, console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task(for_terminal(what, lines=False), total=None)
        drawn = 0.0

        def update(doing: str, done: int, total: int | None) -> None:
            nonlocal drawn
            if time.monotonic() - drawn > _REDRAW_S:
                drawn = time.monotonic()
                shown = for_terminal(doing, lines=False)
                bar.update(task, description=shown, completed=done, total=total, refresh=True)

        yield update


def log(
    ranks: Sequence[int | None],
    nodes: Iterable[str],
    data: bytes,
    stream: str = "stdout",
    *,
    to_stderr: bool = False,
) -> None:
    """Print a line of these ranks on these nodes; of the launcher where a rank is ``None``.

    On a terminal keep its colours, but no other escape sequence. Elsewhere remove all escape sequences and
    keep every other byte.
    """
    to = sys.stderr if to_stderr else sys.stdout
    is_terminal = to.isatty()
    in_colour = takes_colours(to)
    front = _front(tuple(ranks), tuple(nodes), in_colour)
    if stream == "stderr" and is_terminal:
        front += _painted("!", "31", in_colour)
    if stream == "notice":
        _write(to, f"{front} {_painted(f'({_text(data)})', '2', in_colour)}\n")
    elif is_terminal:
        line = for_terminal(data.decode("utf-8", "surrogateescape"), colours=in_colour, lines=False)
        _write(to, f"{front} {line}\n")
    else:
        _write_bytes(to, for_file(front.encode() + b" " + data) + b"\n")


@functools.lru_cache(maxsize=4096)
def _front(ranks: tuple[int | None, ...], nodes: tuple[str, ...], in_colour: bool) -> str:
    numbers = [rank for rank in ranks if rank is not None]
    who = ["launcher"] * (len(numbers) < len(ranks)) + [ranges(numbers)] * bool(numbers)
    colour = f"3{1 + numbers[0] % 6}" if numbers else "2"
    return _painted(f"[{','.join(who)} {fold(nodes)}]", colour, in_colour)


def merged(results: Mapping[str, Completed | Exception]) -> None:
    """Print a command's output on many nodes, identical output once."""
    # Piece by piece, since joined it would be in memory several times.
    for stream, pieces in zip((sys.stdout, sys.stderr), merged_pieces(results), strict=True):
        for piece in pieces:
            _write(stream, piece)


def age(read_at: float, now: float | None = None) -> str:
    """Return an age as text.

    >>> age(1000.0, 1030.0), age(1000.0, 1000.0 + 7300), age(0.0, 1000000.0)
    ('30 s', '2 h', '12 days')
    """
    seconds = max(0.0, (time.time() if now is None else now) - read_at)
    for unit, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def plain(value: Any) -> Any:  # noqa: PLR0911
    """Return records as JSON's own types: dataclasses by field, bytes as text, errors as ``{"error": …}``.

    >>> plain({"node000000": InputError("--x", 1, "is odd", "leave it out"), "found": (b"hi", Path("/x"))})
    {'node000000': {'error': '--x = 1: is odd; leave it out', 'kind': 'input'}, 'found': ['hi', '/x']}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        shown = [f.name for f in dataclasses.fields(value) if f.repr]
        return {name: plain(getattr(value, name)) for name in shown}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, BaseException):
        kind = "input" if isinstance(value, InputError) else type(value).__name__
        return {"error": str(value), "kind": kind}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Path) else value


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _style(text: str) -> str:
    if text in ("running", "yes", "SUCCEEDED"):
        return "green"
    if text in ("failed", "stopped", "FAILED", "INCOMPLETE", "LOST", "CANCELLED") or text.startswith("no:"):
        return "red"
    return ""


def _painter(stream: IO[str]) -> Any:
    in_colour = takes_colours(stream)
    return lambda text, code: _painted(text, code, in_colour)


def _painted(text: str, code: str, in_colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if in_colour else text


def _write_bytes(stream: IO[str], data: bytes) -> None:
    binary = getattr(stream, "buffer", None)
    if binary is None:
        _write(stream, _text(data))
        return
    stream.flush()
    binary.write(data)
    binary.flush()


def _write(stream: IO[str], text: str) -> None:
    text = for_stream(text, stream)
    # A locale that lacks a character of a rank's output must not end the command.
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = getattr(stream, "encoding", None) or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()
