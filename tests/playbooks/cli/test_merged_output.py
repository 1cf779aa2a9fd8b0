"""The output of a command on many nodes, as one text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from launch.errors import NodeUnreachable
from launch.host import Completed
from playbooks.cli.merged_output import merged_pieces

GOLDEN = Path(__file__).parent / "golden"


def merged(results: Mapping[str, Completed | Exception]) -> tuple[str, str]:
    """What the command prints on stdout, and on stderr."""
    out, err = merged_pieces(results)
    return "".join(out), "".join(err)


def test_equal_output_is_shown_once_under_folded_names() -> None:
    results: dict[str, Completed | Exception] = {
        f"node{number:06d}": Completed(0, b"5.15.0\n", b"warning: old\n") for number in range(4)
    }
    results["node000004"] = Completed(0, b"6.1.0\nsecond line\n", b"")
    results["node000005"] = Completed(3, b"", b"no such file\n")
    results["node000006"] = NodeUnreachable("node000006", "refused")
    out, err = merged(results)
    assert out == (GOLDEN / "merged.out").read_text()
    assert err == (GOLDEN / "merged.err").read_text()


def test_only_line_feeds_and_returns_end_a_line() -> None:
    printed = "a\u2028b\x0cc\x85d\r\ne\n".encode()
    both = {"node000000": Completed(0, printed, b""), "node000001": Completed(0, printed, b"")}
    assert merged(both)[0] == "node[000000-000001]\n  a\u2028b\x0cc\x85d\n  e\n"


def test_one_nodes_output_stands_alone_so_that_scripts_can_use_it() -> None:
    assert merged({"node000000": Completed(0, b"5.15.0\n", b"hm\n")}) == ("5.15.0\n", "hm\n")


def test_output_that_is_no_text_does_not_end_the_command() -> None:
    assert merged({"node000000": Completed(0, b"\xff\n", b"")})[0] == "\N{REPLACEMENT CHARACTER}\n"
