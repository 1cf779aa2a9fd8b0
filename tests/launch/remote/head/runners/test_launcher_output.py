"""What launchers print, on its way into the stream."""

from __future__ import annotations

import os
import selectors
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from launch.remote.base.frames import NOTICE, RECORD
from launch.remote.head.runners.launcher_output import LauncherOutput
from launch.remote.log.reader import StreamReader
from launch.remote.log.writer import LAUNCHER, StreamWriter


class Launcher:
    """A launcher's pipe, and what its output became in the stream."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self.is_wanted = True
        self.selector = selectors.DefaultSelector()
        self.stream = StreamWriter(self._folder)
        self.output = LauncherOutput(self.selector, self.stream)
        out, self._into = os.pipe()
        self.pipe: IO[bytes] = os.fdopen(out, "rb", buffering=0)
        self.output.add(self.pipe, 2, 1)

    def print(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._into, data[:4096]) :]
            self.output.read_all(self.is_wanted)

    def end(self) -> None:
        os.close(self._into)
        self.output.read_all(self.is_wanted)

    @property
    def records(self) -> list[tuple[int, int, int, bytes]]:
        read = StreamReader(self._folder).read()
        return [(rank, node, stream, data[RECORD.size :]) for (_, rank, node, stream, _), data in read]


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    made = Launcher(tmp_path)
    yield made
    made.pipe.close()
    made.stream.close()
    made.selector.close()


def test_output_is_written_as_the_launchers_of_that_node_without_nul_bytes(launcher: Launcher) -> None:
    launcher.print(b"one\0\n")
    assert launcher.records == [(LAUNCHER, 2, 1, b"one\n")]
    assert launcher.output.is_open
    launcher.print(b"two")
    launcher.end()
    assert launcher.records == [(LAUNCHER, 2, 1, b"one\n"), (LAUNCHER, 2, 1, b"two")]
    assert not launcher.output.is_open


def test_endless_output_is_cut_short_but_for_its_last_bytes(launcher: Launcher) -> None:
    text = b"".join(b"%06d the same warning again and again\n" % number for number in range(50_000))
    launcher.print(text)
    launcher.end()
    assert len(b"".join(data for _, _, stream, data in launcher.records if stream == 1)) < 1_500_000
    *_, last = launcher.records
    assert last[:3] == (LAUNCHER, 2, NOTICE)
    assert last[3].startswith(b"left out ")
    assert last[3].endswith(b" lines, which were not kept")
    assert launcher.stream.tail(LAUNCHER, 2) == text[-4096:]


def test_output_that_is_not_wanted_is_discarded_up_to_its_end(launcher: Launcher) -> None:
    launcher.is_wanted = False
    launcher.print(b"a guess\n")
    assert launcher.records == []
    launcher.end()
    assert not launcher.output.is_open
