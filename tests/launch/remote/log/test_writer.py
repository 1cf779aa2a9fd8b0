"""The stream on the head: written in segments, read by followers, and alive on a full disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from launch.remote.base import frames
from launch.remote.base.frames import NOTICE
from launch.remote.log import segments
from launch.remote.log.reader import StreamReader
from launch.remote.log.writer import LAUNCHER, StreamWriter, last_lines


def read(reader: StreamReader, until: tuple[int, int] | None = None) -> list[tuple[int, int, str]]:
    """Rank, stream and text of every new record."""
    size = frames.RECORD.size
    return [(rank, stream, data[size:].decode()) for (_, rank, _, stream, _), data in reader.read(until)]


class Disk:
    """The disk under the stream: ``room`` bytes of it are free."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 1 << 30
        self.gives_back = False
        write = os.write

        def limited(fd: int, data: bytes) -> int:
            if not self.room:
                raise OSError(28, "No space left on device")
            data = data[: self.room]
            self.room -= len(data)
            return write(fd, data)

        unlink = os.unlink

        def freeing(path: str) -> None:
            self.room += Path(path).stat().st_size if self.gives_back else 0
            unlink(path)

        monkeypatch.setattr(os, "write", limited)
        monkeypatch.setattr(os, "unlink", freeing)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


class TestSegments:
    def test_what_is_written_is_read_as_it_comes(self, tmp_path: Path) -> None:
        writer, reader = StreamWriter(str(tmp_path)), StreamReader(str(tmp_path))
        assert read(reader) == []
        writer.write(0, 0, 1, b"one\n")
        assert read(reader) == [(0, 1, "one\n")]
        writer.write(1, 0, 2, b"\xc3\xa9\n")
        assert read(reader) == [(1, 2, "é\n")]
        assert read(reader) == []

    def test_a_reader_goes_from_segment_to_segment_without_loss_or_repetition(self, tmp_path: Path) -> None:
        writer, reader = StreamWriter(str(tmp_path), segment=200, kept=100), StreamReader(str(tmp_path))
        seen = []
        for number in range(100):
            writer.write(0, 0, 1, b"%d\n" % number)
            if number % 7 == 0:
                seen += read(reader)
        seen += read(reader)
        assert len(segments.numbers(str(tmp_path))) > 5
        assert seen == [(0, 1, f"{number}\n") for number in range(100)]
        assert read(StreamReader(str(tmp_path))) == seen

    def test_only_the_newest_are_kept_and_a_reader_that_came_late_says_what_it_missed(
        self, tmp_path: Path
    ) -> None:
        writer = StreamWriter(str(tmp_path), segment=100, kept=3)
        for number in range(100):
            writer.write(0, 0, 1, b"%04d\n" % number)
        assert len(segments.numbers(str(tmp_path))) == 3
        assert not list(tmp_path.glob("*.new"))
        (who, stream, words), *rest = read(StreamReader(str(tmp_path)))
        missed = 100 - len(rest)
        assert (who, stream) == (LAUNCHER, NOTICE)
        assert words.startswith(f"missed {5 * missed} B, {missed} lines of all ranks")
        assert rest == [(0, 1, f"{number:04}\n") for number in range(missed, 100)]

    def test_a_slow_reader_keeps_what_it_has_open_and_says_what_went_before_it_came_there(
        self, tmp_path: Path
    ) -> None:
        writer, reader = StreamWriter(str(tmp_path), segment=100, kept=2), StreamReader(str(tmp_path))
        writer.write(0, 0, 1, b"0000\n")
        assert read(reader) == [(0, 1, "0000\n")]
        for number in range(1, 50):
            writer.write(0, 0, 1, b"%04d\n" % number)
        result = read(reader)
        gaps = [number for number, one in enumerate(result) if one[1] == NOTICE]
        assert len(gaps) == 1
        before, after = result[: gaps[0]], result[gaps[0] + 1 :]
        missed = 49 - len(before) - len(after)
        assert result[gaps[0]][2].startswith(f"missed {5 * missed} B, {missed} lines")
        assert before == [(0, 1, f"{n:04}\n") for n in range(1, 1 + len(before))]
        assert after == [(0, 1, f"{n:04}\n") for n in range(50 - len(after), 50)]

    def test_a_reader_of_the_newest_segment_alone_misses_nothing(self, tmp_path: Path) -> None:
        writer = StreamWriter(str(tmp_path), segment=100)
        for number in range(20):
            writer.write(0, 0, 1, b"%d\n" % number)
        last = segments.numbers(str(tmp_path))[-1]
        result = read(StreamReader(str(tmp_path), last))
        assert result
        assert result == [(0, 1, f"{n}\n") for n in range(20 - len(result), 20)]

    def test_reading_can_end_where_the_stream_did_at_some_time(self, tmp_path: Path) -> None:
        writer = StreamWriter(str(tmp_path), segment=100, kept=100)
        for number in range(10):
            writer.write(0, 0, 1, b"%d\n" % number)
        reader = StreamReader(str(tmp_path))
        end = reader.end
        for number in range(10, 30):
            writer.write(0, 0, 1, b"%d\n" % number)
        assert read(reader, end) == [(0, 1, f"{n}\n") for n in range(10)]
        assert read(reader) == [(0, 1, f"{n}\n") for n in range(10, 30)]

    def test_a_half_written_record_waits_for_its_rest(self, tmp_path: Path) -> None:
        StreamWriter(str(tmp_path)).write(0, 0, 1, b"whole\n")
        path = tmp_path / "stream.000001.log"
        data = path.read_bytes()
        path.write_bytes(data[:-3])
        reader = StreamReader(str(tmp_path))
        assert read(reader) == []
        path.write_bytes(data)
        assert read(reader) == [(0, 1, "whole\n")]


class TestAFullDisk:
    def test_what_cannot_be_written_is_counted_and_told_when_there_is_room(
        self, tmp_path: Path, disk: Disk
    ) -> None:
        writer = StreamWriter(str(tmp_path))
        writer.write(0, 0, 1, b"before\n")
        disk.room = 0
        for _ in range(3):
            writer.write(1, 0, 1, b"lost\n")
        disk.room = 1 << 20
        writer.write(0, 0, 1, b"after\n")
        words = "left out 15 B, 3 lines of all ranks: No space left on device; see the logs on the nodes"
        assert read(StreamReader(str(tmp_path))) == [
            (0, 1, "before\n"),
            (LAUNCHER, NOTICE, words),
            (0, 1, "after\n"),
        ]
        assert writer.tail(1, 0) == b"lost\n" * 3

    @pytest.mark.parametrize("room", range(1, 40))
    def test_a_record_of_which_a_part_was_written_is_finished_first(
        self, tmp_path: Path, disk: Disk, room: int
    ) -> None:
        writer = StreamWriter(str(tmp_path))
        writer.write(0, 0, 1, b"before\n")
        reader = StreamReader(str(tmp_path))
        assert read(reader) == [(0, 1, "before\n")]
        disk.room = room
        lines = [f"line {number}\n" for number in range(4)]
        for line in lines:
            writer.write(0, 0, 1, line.encode())
            assert all(record in [(0, 1, text) for text in lines] for record in read(reader)[1:])
        disk.room = 1 << 20
        writer.write(0, 0, 1, b"after\n")
        result = read(StreamReader(str(tmp_path)))
        kept = [text for rank, _, text in result if rank == 0][1:-1]
        assert kept == lines[: len(kept)]
        assert result[-2][2].startswith(f"left out {7 * (4 - len(kept))} B, {4 - len(kept)} line")
        assert result[-1] == (0, 1, "after\n")

    def test_why_the_stream_breaks_off_is_told_at_once_out_of_a_reserve(
        self, tmp_path: Path, disk: Disk
    ) -> None:
        writer = StreamWriter(str(tmp_path))
        writer.write(0, 0, 1, b"before\n")
        disk.room, disk.gives_back = 30, True
        for _ in range(3):
            writer.write(0, 0, 1, b"x" * 200_000 + b"\n")
            disk.room = 0
        first, half, (who, stream, words) = read(StreamReader(str(tmp_path)))
        assert first == (0, 1, "before\n")
        assert half == (0, 1, "x" * 200_000 + "\n")
        assert (who, stream) == (LAUNCHER, NOTICE)
        assert words.startswith("stops here: No space left on device; the job and the logs")
        disk.room = 1 << 30
        writer.write(0, 0, 1, b"after\n")
        assert [text[:9] for _, _, text in read(StreamReader(str(tmp_path)))[3:]] == ["left out ", "after\n"]
        assert (tmp_path / "stream.reserve").exists()
        writer.close()
        assert not (tmp_path / "stream.reserve").exists()

    def test_the_disk_is_full_from_the_start(self, tmp_path: Path, disk: Disk) -> None:
        disk.room = 0
        writer = StreamWriter(str(tmp_path))
        writer.write(0, 0, 1, b"lost\n")
        assert segments.numbers(str(tmp_path)) == []
        disk.room = 1 << 20
        writer.close()
        assert [text[:21] for _, _, text in read(StreamReader(str(tmp_path)))] == ["left out 5 B, 1 line "]

    def test_a_segment_goes_on_when_the_next_cannot_be_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer = StreamWriter(str(tmp_path), segment=50)

        def full(*_: Any) -> tuple[int, int]:
            raise OSError(28, "No space left on device")

        writer.write(0, 0, 1, b"x" * 60)
        with monkeypatch.context() as patch:
            patch.setattr(segments, "begin", full)
            writer.write(0, 0, 1, b"second")
        writer.write(0, 0, 1, b"third")
        assert segments.numbers(str(tmp_path)) == [1, 2]
        (tmp_path / "stream.².log").touch()  # a job writes in its folder as well
        assert segments.numbers(str(tmp_path)) == [1, 2]
        assert read(StreamReader(str(tmp_path))) == [(0, 1, "x" * 60), (0, 1, "second"), (0, 1, "third")]


class TestWhatRunnersTell:
    def test_output_notices_and_last_bytes(self, tmp_path: Path) -> None:
        writer = StreamWriter(str(tmp_path))
        note = {"rank": 3, "log": "rank-3", "bytes": 12_300_000, "lines": 240_112, "lost": 0, "why": ""}
        sent = [
            (frames.OUT, frames.OUTPUT.pack(3, 2) + b"one\n"),
            (frames.NOTE, frames.pack(note)),
            (frames.TAIL, frames.OUTPUT.pack(3, 0) + b"true last line\n"),
        ]
        assert all(writer.on_frame(kind, payload, 1, "node000001") for kind, payload in sent)
        assert not writer.on_frame(frames.EXIT, b"", 1, "node000001")
        words = "left out 12.3 MB, 240,112 lines; complete in logs/rank-3.log on node000001"
        assert read(StreamReader(str(tmp_path))) == [(3, 2, "one\n"), (3, NOTICE, words)]
        assert writer.tails == {(3, 1): b"true last line\n"}

    def test_last_lines_have_what_stdout_began_before_stderr_came_between(self, tmp_path: Path) -> None:
        writer = StreamWriter(str(tmp_path))
        for stream, data in ((1, b"one\nchunk "), (2, b"warning\nworse\n"), (1, b"x ...\nleft")):
            writer.on_frame(frames.OUT, frames.OUTPUT.pack(3, stream) + data, 1, "node000001")
        assert last_lines(writer.tail(3, 1)) == ["one", "warning", "worse", "chunk x ...", "left"]

    def test_an_unfinished_piece_of_either_stream_is_a_last_line(self, tmp_path: Path) -> None:
        writer = StreamWriter(str(tmp_path))
        for stream, data in ((1, b"loss: 0.5"), (2, b"Aborted")):
            writer.on_frame(frames.OUT, frames.OUTPUT.pack(3, stream) + data, 1, "node000001")
        assert last_lines(writer.tail(3, 1)) == ["loss: 0.5", "Aborted"]
