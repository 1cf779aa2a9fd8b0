"""What the sampling of a running job costs, and how fresh its samples are on the head.

Cost: processor time of a runner's sampler beside eight ranks that print, with sixteen processes each.
Freshness: the frames of 300 runners with eight ranks and eight GPUs each, at times of their own in every
interval of samples, into the head's code over sockets; a reader beside it reads samples.json at any time, and
notes how old the newest sample of the oldest node is then. Ranks and runners are simulated: 300 rehearsed
nodes with 2400 processes that print would measure these two processors.
"""

from __future__ import annotations

import json
import os
import random
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from bench.report import Claim, median, save, table
from launch.remote.base import frames, timing
from launch.remote.base.payloads import RunnerSpec
from launch.remote.base.rate_limit import RecentOutput
from launch.remote.head.runners import frame_fields
from launch.remote.head.runners.channel import STARTED, Channel
from launch.remote.sample import stored_samples
from launch.remote.sample.recorder import SampleRecorder
from launch.remote.sample.sample_records import Sample
from launch.remote.sample.sampler import Sampler

__all__ = ["main"]

CORE_PERCENT, FRESH_S = 0.5, timing.SAMPLE_AGE_S
RANKS, WORKERS, SAMPLES = 8, 16, 20
NODES, SECONDS, POLL_S = 300, 20, 0.05
_TICK_S = 0.2
_CHUNK, _GIB = 1 << 16, 1 << 30
LINE = b"2026-11-23 12:00:00 rank %d: step %d loss 0.123456 lr 0.001 1234.5 samples/s eta 0:10:00\n"
WORKER = f"for i in $(seq {WORKERS}); do sleep 1000 & done; wait"


def main() -> int:
    """Measures, prints and saves; exit status 1 when a figure is missed."""
    cost = time_sampler()
    fresh = time_head()
    table(
        f"a sampler beside {RANKS} ranks with {WORKERS} processes each, % of a core",
        ("few lines", "much output", "processes of the machine", "ms for each GiB of output"),
        [(cost["few"], cost["much"], cost["processes"], cost["ms_each_gib"])],
    )
    table(
        f"{NODES} runners' samples on the head, simulated",
        (
            "until readable, s, median",
            "99 of 100",
            "most",
            "oldest node's age at any time, s, median",
            "most",
            "% of a core",
            "samples.json, MiB",
        ),
        [
            (
                fresh["median"],
                fresh["late"],
                fresh["most"],
                fresh["usual_age"],
                fresh["age"],
                fresh["core"],
                fresh["mib"],
            )
        ],
    )
    claims = [
        Claim(
            "the sampler of a node whose ranks print a line for each sample",
            cost["few"],
            CORE_PERCENT,
            "% of a core",
        ),
        Claim("the same where they print much", cost["much"], CORE_PERCENT, "% of a core"),
        Claim(f"age of the oldest of {NODES} nodes' newest samples, read at any time", fresh["age"], FRESH_S),
    ]
    return save("see", {"sampler": cost, "head": fresh}, claims)


@contextmanager
def ranks() -> Iterator[dict[int, int]]:
    """Gives the pids of processes with children of their own, by rank."""
    started = [subprocess.Popen(["sh", "-c", WORKER], start_new_session=True) for _ in range(RANKS)]
    try:
        time.sleep(1)
        yield {rank: process.pid for rank, process in enumerate(started)}
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()


def time_sampler() -> dict[str, float]:
    """Returns the percentage of a core that a sampler takes, with few and with many lines between samples."""
    found: dict[str, float] = {}
    with ranks() as pids:
        found["processes"] = float(sum(name.isdigit() for name in os.listdir("/proc")))  # noqa: PTH208
        for name, count in (("few", 1), ("much", 1000)):
            spec = cast("RunnerSpec", {"job": "bench", "metrics": {}, "first": 1})
            sampler = Sampler(spec, pids, time.monotonic())
            outputs = {rank: RecentOutput(time.monotonic()) for rank in pids}
            spent = 0.0
            for step in range(SAMPLES):
                time.sleep(timing.SAMPLE_S)
                for rank, output in outputs.items():
                    output.add(1, LINE % (rank, step) * count, time.monotonic())
                begun = time.process_time()
                frames.frame(frames.SAMPLE, frames.pack(sampler.sample(outputs, time.monotonic())))
                spent += time.process_time() - begun
            found[name] = 100 * spent / SAMPLES / timing.SAMPLE_S
            sampler.close()
    output, data = RecentOutput(0.0), bytes(_CHUNK)
    begun = time.process_time()
    for _ in range(_GIB // _CHUNK):
        output.add(1, data, 1.0)
    found["ms_each_gib"] = 1000 * (time.process_time() - begun)
    return found


def a_sample(node: int, step: int) -> Sample:
    """Returns what a runner of eight ranks on eight busy GPUs sends."""
    gpu = {"utilisation": 97, "memory_used": 76 << 30, "memory_total": 80 << 30, "power_mw": 690_123}
    one = {"cpu_permille": 1234, "memory": 12_345_678_901, "silent_ms": 250}
    metrics = {"step": str(step), "loss": "0.123456", "samples_per_s": "1234.5"}
    figures = {
        **{"cpu_permille": 512, "memory_used": 123_456_789_012, "memory_total": 1_934_567_890_123},
        **{"net_rx": 123_456, "net_tx": 123_456, "ib_rx": 40_123_456_789, "ib_tx": 40_123_456_789},
        "gpus": [{**gpu, "index": index, "clock_events": 4} for index in range(RANKS)],
    }
    numbers = range(RANKS * node, RANKS * node + RANKS)
    ranks = [{**one, "rank": rank, "metrics": metrics, "lines": {}} for rank in numbers]
    return cast("Sample", {"node": [figures], "ranks": ranks})


def time_head() -> dict[str, float]:
    """Returns how long samples take until samples.json has them, and what that takes of the head."""
    pairs = [socket.socketpair() for _ in range(NODES)]
    with tempfile.TemporaryDirectory() as folder:
        sender = _in_child(lambda: _send([theirs for _, theirs in pairs]))
        reader = _in_child(lambda: _read_samples(Path(folder)))
        core = _serve([ours for ours, _ in pairs], folder)
        for child in (sender, reader):
            os.waitpid(child, 0)
        delays = json.loads((Path(folder) / "delays.json").read_text())
        mib = (Path(folder) / stored_samples.LIVE).stat().st_size / 2**20
    for pair in pairs:
        for end in pair:
            end.close()
    most: list[float] = sorted(delays["delays"])
    return {
        "median": median(most),
        "late": most[int(0.99 * len(most))],
        "most": most[-1],
        "usual_age": median(delays["ages"]),
        "age": max(delays["ages"]),
        "core": 100 * core,
        "mib": mib,
    }


def _in_child(work: Any) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def _send(ends: list[socket.socket]) -> None:
    """Sends each runner's sample once in each interval, at a time of its own within it."""
    payloads = [frames.frame(frames.SAMPLE, frames.pack(a_sample(node, 7))) for node in range(NODES)]
    seeded = random.Random(20)  # noqa: S311  (the same in each run)
    due = sorted((timing.SAMPLE_S * seeded.random(), node) for node in range(NODES))
    begun = time.monotonic() + 0.5
    for number in range(int(SECONDS / timing.SAMPLE_S)):
        for offset, node in due:
            time.sleep(max(0.0, begun + number * timing.SAMPLE_S + offset - time.monotonic()))
            ends[node].sendall(payloads[node])


def _serve(ends: list[socket.socket], folder: str) -> float:
    """Takes frames as a supervisor does; returns the part of a core that it took."""
    recorder = SampleRecorder(folder, 0)
    selector = selectors.DefaultSelector()
    for node, end in enumerate(ends):
        channel = Channel(node, list(range(RANKS * node, RANKS * node + RANKS)), connection=end)
        channel.stage = STARTED
        selector.register(end, selectors.EVENT_READ, channel)
    begun = due = time.monotonic()
    spent = time.process_time()
    while time.monotonic() < begun + SECONDS + 1:
        for key, _ in selector.select(max(0.0, min(_TICK_S, due - time.monotonic()))):
            channel = key.data
            for kind, payload in channel.receive():
                channel.accept(kind)
                fields = frame_fields.read(kind, payload)
                recorder.add(f"node{channel.node:06}", channel.ranks, fields)
        due = recorder.write_due(time.monotonic())
    return (time.process_time() - spent) / (time.monotonic() - begun)


def _read_samples(folder: Path) -> None:
    """Notes when each sample can be read first, and at each look how old the oldest node's newest is."""
    seen: dict[str, float] = {}
    delays, ages = [], []
    until = time.monotonic() + SECONDS
    stamp = 0
    while time.monotonic() < until:
        time.sleep(POLL_S)
        with suppress(FileNotFoundError):
            entry = (folder / stored_samples.LIVE).stat()
            opened = time.time()  # parsing is the reader's own time
            if entry.st_mtime_ns != stamp:
                stamp = entry.st_mtime_ns
                live = stored_samples.live(str(folder))
                before, nodes = seen, live["nodes"] if live else {}
                seen = {name: node["time"] for name, node in nodes.items()}
                delays += [opened - at for name, at in seen.items() if before.get(name) != at]
            if len(seen) == NODES:
                ages.append(opened - min(seen.values()))
    (folder / "delays.json").write_text(json.dumps({"delays": delays, "ages": ages}))


if __name__ == "__main__":
    sys.exit(main())
