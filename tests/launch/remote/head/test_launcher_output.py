"""What launchers say, on its way into the stream."""

from __future__ import annotations

import os
import selectors
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from launch.remote.base.frames import NOTICE, RECORD
from launch.remote.head.launcher_output import Words
from launch.remote.log.reader import StreamReader
from launch.remote.log.writer import LAUNCHER, StreamWriter


class Said:
    """A launcher's pipe and what came of it in the stream."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self.selector = selectors.DefaultSelector()
        self.stream = StreamWriter(self._folder)
        self.words = Words(self.selector, self.stream)
        out, self._into = os.pipe()
        self.pipe: IO[bytes] = os.fdopen(out, "rb", buffering=0)
        self.words.listen(self.pipe, 2, 1)

    def say(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._into, data[:4096]) :]
            self.words.read_all()

    def end(self) -> None:
        os.close(self._into)
        self.words.read_all()

    @property
    def records(self) -> list[tuple[int, int, int, bytes]]:
        read = StreamReader(self._folder).read()
        return [(rank, node, stream, data[RECORD.size :]) for (_, rank, node, stream, _), data in read]


@pytest.fixture
def said(tmp_path: Path) -> Iterator[Said]:
    made = Said(tmp_path)
    yield made
    made.pipe.close()
    made.stream.close()
    made.selector.close()


def test_every_word_as_the_launchers_of_that_node_without_nul_bytes(said: Said) -> None:
    said.say(b"one\0\n")
    assert said.records == [(LAUNCHER, 2, 1, b"one\n")]
    assert said.words.are_coming
    said.say(b"two")
    said.end()
    assert said.records == [(LAUNCHER, 2, 1, b"one\n"), (LAUNCHER, 2, 1, b"two")]
    assert not said.words.are_coming


def test_one_that_never_stops_is_cut_short_but_for_its_last_words(said: Said) -> None:
    text = b"".join(b"%06d the same warning again and again\n" % number for number in range(50_000))
    said.say(text)
    said.end()
    assert len(b"".join(data for _, _, stream, data in said.records if stream == 1)) < 1_500_000
    *_, last = said.records
    assert last[:3] == (LAUNCHER, 2, NOTICE)
    assert last[3].startswith(b"left out ")
    assert last[3].endswith(b" lines, which are kept nowhere")
    assert said.stream.tail(LAUNCHER, 2) == text[-4096:]


def test_what_is_of_no_use_any_more_is_passed_over(said: Said) -> None:
    said.words.hushed = lambda: True
    said.say(b"a guess\n")
    assert said.records == []
