"""What ranks print, and the job's throughput by it."""

from __future__ import annotations

import re

import pytest

from launch.scaling.metric_numbers import Figures, MetricReader, NoThroughput, SourceLine, throughput

HOROVOD = re.compile(r"([0-9.]+) img/sec")


def read(pattern: re.Pattern[str] | None, *lines: tuple[int, bytes], ranks: int = 4) -> Figures:
    reader = MetricReader(pattern)
    for rank, line in lines:
        reader.feed(rank, line)
    return reader.figures(ranks)


def test_a_figure_that_rank_0_prints_per_gpu_counts_for_each_rank() -> None:
    found = read(HOROVOD, *((0, b"Iter #%d: %d.0 img/sec per GPU" % (n, n)) for n in (50, 99, 100, 101)))
    sources = (SourceLine(50.0, "Iter #50: 50.0 img/sec per GPU", 4),)
    assert found == Figures(4, {0: (50.0, 99.0, 100.0, 101.0)}, of_one=4, sources=sources)
    assert throughput(found, 1, None) == 400.0
    assert throughput(found, 1, "job") == 100.0


def test_figures_of_all_ranks_are_added_up_each_by_its_median_after_the_warm_up() -> None:
    lines = [(rank, b"%d img/sec" % value) for value in (1, 100, 120) for rank in range(4)]
    assert throughput(read(HOROVOD, *lines), 1, None) == 440.0


def test_a_figure_of_one_rank_that_does_not_say_whose_it_is_needs_an_answer() -> None:
    found = read(HOROVOD, (0, b"100 img/sec"))
    with pytest.raises(NoThroughput, match=r"1 of 4 ranks printed figures: .* give --of rank or --of job"):
        throughput(found, 0, None)
    assert throughput(found, 0, "job") == 100.0
    assert throughput(found, 0, "rank") == 400.0


def test_figures_of_ranks_and_of_the_job_are_not_mixed() -> None:
    found = read(HOROVOD, (0, b"100 img/sec per GPU"), (0, b"400 img/sec"))
    with pytest.raises(NoThroughput, match=r"1 of 2 lines are of one rank"):
        throughput(found, 0, None)


def test_a_run_without_figures_after_the_warm_up_has_no_throughput() -> None:
    with pytest.raises(NoThroughput, match=r"no rank printed a figure; try the pattern with `fab logs"):
        throughput(read(HOROVOD), 0, "job")
    with pytest.raises(
        NoThroughput, match=r"no rank printed more than 1 figure, and the first 2 are warm-up"
    ):
        throughput(read(HOROVOD, (0, b"7 img/sec")), 2, "job")


@pytest.mark.parametrize("line", [b"0 img/sec", b"nan img/sec", b"speed: 3", b"\xff\xfe", b". img/sec"])
def test_what_is_no_figure_above_0_does_not_count(line: bytes) -> None:
    assert read(HOROVOD, (0, line)).by_rank == {}


def test_common_frameworks_lines_are_read_without_a_pattern() -> None:
    lines = (b"train_samples_per_second: 12.5", b"[3/9] 1,024 samples/s")
    assert read(None, *((0, line) for line in lines)).by_rank == {0: (12.5, 1024.0)}
    assert read(None, (0, b"step 1 loss 0.5 samples/s 1000")).by_rank == {0: (1000.0,)}
    assert read(None, (0, b"\x1b[32mloss: 0.5  \x1b[34msamples/s: \x1b[1m1,000\x1b[0m")).by_rank == {
        0: (1000.0,)
    }
    assert read(None, (0, b"0.5 samples/s 1000"), (0, b"loss 0.5 it/s 3.25")).by_rank == {}


def test_totals_of_all_ranks_count_where_nothing_else_is_printed() -> None:
    each = (b"Iter #9: 544.8 img/sec per GPU", b"Img/sec per GPU: 544.1 +-1.2")
    total = b"Total img/sec on 8 GPU(s): 4352.8 +-9.6"
    found = read(None, *((0, line) for line in (*each, total)), ranks=8)
    assert found.by_rank == {0: (544.8, 544.1)}
    assert throughput(found, 1, None) == 8 * 544.1
    own, unsaid = b"Iter #9: 100.0 img/sec per GPU", b'{"img_per_s": 800.0}'
    assert read(None, (0, own), (0, unsaid), (0, total), ranks=8).by_rank == {0: (100.0,)}
    assert read(None, (0, unsaid), (0, total), ranks=8).by_rank == {0: (800.0,)}
    found = read(None, (0, total), ranks=8)
    assert (found.by_rank, found.is_total) == ({0: (4352.8,)}, True)
    assert throughput(found, 0, None) == 4352.8


def test_whose_a_figure_is_stands_beside_it() -> None:
    line = b"Batch (t): 0.512, 4000.1/s, 500.0/s/gpu Loss: 5.9 (6.1)"  # open_clip: of all ranks, then of one
    assert throughput(read(None, (0, line), ranks=8), 0, None) == 4000.1
    line = b"loss per GPU: 0.5, 4000.1 samples/s"
    with pytest.raises(NoThroughput, match=r"is each its rank's, or the job's\?"):
        throughput(read(None, (0, line), ranks=8), 0, None)


def test_the_first_line_of_each_form_is_kept_with_its_figure() -> None:
    lines = [b"step %d: %d samples/s" % (step, 100 + step) for step in range(3)]
    found = read(None, *((0, line) for line in lines), (1, b"samples/s 5"), (0, b"no figure"))
    assert found.sources == (SourceLine(100.0, "step 0: 100 samples/s", 3), SourceLine(5.0, "samples/s 5", 1))
    many = read(None, *((0, b"%c%s samples/s: 5" % (65 + n, b"y" * 9000)) for n in range(9)))
    assert many.sources == ()
    many = read(re.compile("([0-9]+)"), *((0, b"%c 5 %s" % (65 + n, b"y" * 3000)) for n in range(9)))
    assert [len(one.line) for one in many.sources] == [400] * 3


def test_a_number_at_the_end_of_what_is_searched_may_go_on_and_is_none() -> None:
    start = b"x" * 4080 + b" at "
    assert read(re.compile("at ([0-9]+)"), (0, start + b"123456789012345")).by_rank == {}
    assert read(re.compile("at ([0-9]+)"), (0, start + b"12")).by_rank == {0: (12.0,)}


def test_thousands_may_have_commas_and_a_group_may_be_empty() -> None:
    found = read(re.compile(r"speed ([0-9,.]+)?"), (0, b"speed 1,234.5"), (0, b"speed "))
    assert found.by_rank == {0: (1234.5,)}


def test_memory_is_bounded_whatever_ranks_print() -> None:
    reader = MetricReader(HOROVOD)
    for _ in range(10_003):
        reader.feed(0, b"5 img/sec")
    assert reader.feed(1, b"x" * 5000 + b"5 img/sec") is None  # a line is searched to its 4096th character
    found = reader.figures(1)
    assert (found.lines, found.left_out) == (10_000, 3)
