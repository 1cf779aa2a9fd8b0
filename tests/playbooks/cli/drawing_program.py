"""A program that draws the terminal's size until q; started by tests of the full screen."""

from __future__ import annotations

import os
import select
import sys

from invoke.exceptions import Exit

from playbooks.cli.signals import attached
from playbooks.cli.terminal import full_screen
from playbooks.start import open_streams


def main(end: str) -> int:
    wake, waker = os.pipe()
    with (
        attached(lambda number: f"ended by signal {number}"),
        full_screen(lambda: os.write(waker, b"!")) as screen,
    ):
        typed = ""
        while True:
            columns, lines = screen.size
            screen.draw([((f"{columns} x {lines}", "bold"), (f" typed {typed}", "red"))])
            if 0 in select.select([0, wake], [], [])[0]:
                typed += os.read(0, 100).decode()
                if "q" in typed:
                    return 0
                if "x" in typed:
                    raise RuntimeError(end)
            else:
                os.read(wake, 100)


if __name__ == "__main__":
    open_streams()  # as fab does
    try:
        sys.exit(main("raised inside"))
    except Exit as end:
        sys.exit(end.code)
