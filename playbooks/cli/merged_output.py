"""What many nodes answered, as text: nodes with the same answer stand together before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from launch.host import Completed
from launch.nodeset import fold
from launch.remote.base.messages import size

__all__ = ["grouped", "merged_pieces"]


def grouped(texts: Mapping[str, str]) -> list[str]:
    """Return a line for each text with the nodes that have it; ``texts`` are by node.

    >>> grouped({"node000000": "idle", "node000001": "idle", "node000002": "off"})
    ['node[000000-000001]: idle', 'node000002: off']
    """
    alike: dict[str, list[str]] = {}
    for node, text in texts.items():
        alike.setdefault(text, []).append(node)
    return [f"{fold(nodes)}: {text}" for text, nodes in alike.items()]


def merged_pieces(results: Mapping[str, Completed | Exception]) -> tuple[Iterable[str], Iterable[str]]:
    """Return texts for stdout and for stderr, one for each different output, the one of most nodes first; a
    single node's output alone, as if the command had run here.

    >>> same, other = Completed(0, b"5.15\\n", b""), Completed(3, b"", b"no")
    >>> out, err = merged_pieces({"node000000": same, "node000001": same, "node000002": other})
    >>> list(out), list(err)
    (['node[000000-000001]\\n  5.15\\n', 'node000002: exit status 3\\n'], ['node000002: stderr\\n  no\\n'])
    """
    alike: dict[Completed, list[str]] = {}
    for node, outcome in results.items():
        if not isinstance(outcome, Exception):
            alike.setdefault(outcome, []).append(node)
    if len(results) == 1 and not any(one.exit_status for one in alike):
        return _alone(alike)
    groups = sorted(alike.items(), key=lambda item: (-len(item[1]), item[1]))
    out = (
        _group(
            nodes,
            f": exit status {one.exit_status}" if one.exit_status else "",
            one.stdout,
            one.stdout_left_out,
        )
        for one, nodes in groups
    )
    err = (_group(nodes, ": stderr", one.stderr, one.stderr_left_out) for one, nodes in groups if one.stderr)
    return out, err


def _alone(alike: Iterable[Completed]) -> tuple[list[str], list[str]]:
    """Return a single node's output. Remarks go to stderr, since stdout may be a script's input."""
    out = [_text(one.stdout) for one in alike]
    err = [
        f"({size(one.stdout_left_out)} of stdout left out before its end)\n"
        for one in alike
        if one.stdout_left_out
    ]
    err += [f"({size(one.stderr_left_out)} left out)\n" for one in alike if one.stderr_left_out]
    return out, err + [_text(one.stderr) for one in alike]


def _group(nodes: Iterable[str], what: str, data: bytes, left_out: int) -> str:
    lines = [_text(line) for line in data.splitlines()]  # bytes: only line feeds and returns end one
    if left_out:
        lines.insert(0, f"({size(left_out)} left out)")
    return f"{fold(nodes)}{what}\n" + "".join(f"  {line}\n" for line in lines)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
