"""Advice on a job: what its records show that costs time, and what is done about it.

Each rule has a limit below which it is silent, and the reason or the source of the limit beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from launch.durations import span as duration
from launch.nodeset import fold
from launch.numbers import counted
from launch.report.facts import JobFacts, mean, usual
from launch.report.goodput import NO_STEP

__all__ = ["advise"]

_RUN_S = 60.0
"""Shorter jobs are tries: of their time most is start, whatever they do. Twice the interval of Princeton's
jobstats (its config.py: SAMPLING_PERIOD = 30)."""
_STAGED, _STAGED_S = 0.1, 10.0
"""Part of the time, and seconds, from which staging is worth a word: less is lost in any start."""
_QUEUED = 0.25
"""Part of the time in the queue from which more nodes may be worth their price."""
_IDLE_GPU = 0.5
"""Mean utilisation on Princeton's clusters, by which jobstats measures a job (its config.py, notes on GPU
utilization)."""
_BUSY_CPU = 0.9
"""Above it SageMaker's debugger takes processors for the bottleneck of idle GPUs (CPUBottleneck's
cpu_threshold)."""
_CHECKPOINTS = 0.1
"""Part of the ranks' time. By J. W. Young's rule (A first order approximation to the optimum checkpoint
interval, 1974: the square root of twice a checkpoint's time times the time between failures) a tenth is right
only where a launch fails after every fifth of them."""
_LOST = 0.05
"""Part of the ranks' time: half of the limit of checkpoints, for more of them cost as much again."""
_SLOW = 0.85
"""Part of the usual rate below which a node is worth a check, as :data:`launch.health.measurement.WARN`."""
_FEW = 3
"""Nodes below this have no usual rate."""


def advise(facts: JobFacts) -> tuple[str, ...]:
    """Return the advice on a job, a sentence each, the most expensive matter first."""
    if not facts.spans:
        return ()
    found = [one for rule in _RULES for one in rule(facts)]
    return tuple(text for _, text in sorted(found, key=lambda one: -one[0]))


_Found = Iterator[tuple[float, str]]
"""Seconds that a matter costs, and the advice."""


def _environment(facts: JobFacts) -> _Found:
    seconds = facts.seconds_in("stage-environment")
    if _matters(facts, seconds):
        yield (
            seconds,
            f"its environment took {_of_total(facts, seconds)}: the nodes keep it now, and the next job "
            "with the same packages starts without",
        )


def _data(facts: JobFacts) -> _Found:
    seconds = facts.seconds_in("stage-data")
    if _matters(facts, seconds):
        yield (
            seconds,
            f"the staging of its data took {_of_total(facts, seconds)}: the nodes keep it while they have "
            "room; `fab data.stage` brings data before a job needs its nodes",
        )


def _matters(facts: JobFacts, seconds: float) -> bool:
    return seconds >= _STAGED_S and seconds >= _STAGED * facts.total_s


def _queue(facts: JobFacts) -> _Found:
    seconds = facts.seconds_in("queue")
    if seconds >= _RUN_S and seconds >= _QUEUED * facts.total_s:
        yield (
            seconds,
            f"it waited in the queue for {_of_total(facts, seconds)}: `fab jobs` shows for what, `fab scale` "
            "adds nodes",
        )


def _gpus(facts: JobFacts) -> _Found:
    busy, run_s = mean(one.gpu for one in facts.nodes), facts.seconds_in("run")
    if busy is None or busy >= _IDLE_GPU or run_s < _RUN_S:
        return
    words = f"its GPUs were busy {100 * busy:.0f} % of the time"
    cpu = mean(one.cpu for one in facts.nodes)
    if busy == 0:
        yield run_s, f"{words}: nothing computed on them; see whether the framework finds them"
    elif cpu is not None and cpu >= _BUSY_CPU:
        yield (
            (1 - busy) * run_s,
            f"{words}, its nodes' processors {100 * cpu:.0f} %: the input pipeline keeps them waiting; "
            "prepare data before the job, or on the GPUs",
        )
    else:
        yield (
            (1 - busy) * run_s,
            f"{words}: they wait for input, for one another or for a larger batch; more workers of the data "
            "loader are the cheapest try",
        )


def _checkpoints(facts: JobFacts) -> _Found:
    goodput, run_s = facts.goodput, facts.seconds_in("run")
    if goodput is not None and run_s >= _RUN_S and goodput.checkpoint_s >= _CHECKPOINTS * run_s:
        yield (
            goodput.checkpoint_s,
            f"{counted(goodput.checkpoints, 'checkpoint')} took {100 * goodput.checkpoint_s / run_s:.0f} % "
            "of the ranks' time: write fewer, or in the background (torch.distributed.checkpoint.async_save)",
        )


def _lost_work(facts: JobFacts) -> _Found:
    run_s = facts.seconds_in("run")
    for one in () if facts.goodput is None else facts.goodput.lost:
        if one.seconds >= _LOST * run_s:
            yield (
                one.seconds,
                f"restart {one.restart} repeated {counted(round(one.steps), 'step')}, "
                f"{duration(one.seconds)} of work: checkpoint more often",
            )


def _slow_nodes(facts: JobFacts) -> _Found:
    rates = [one.rate for one in facts.nodes]
    common = usual(rates)
    if common is None or common <= 0 or sum(rate is not None for rate in rates) < _FEW:
        return
    slow = [one for one in facts.nodes if one.rate is not None and one.rate < _SLOW * common]
    if not slow:
        return
    worst = 1 - min(one.rate or 0.0 for one in slow) / common
    names = fold(one.node for one in slow)
    yield (
        worst * facts.seconds_in("run"),
        f"ranks on {names} are up to {100 * worst:.0f} % slower than the median of the nodes: "
        f"`fab check --nodes {','.join(one.node for one in slow[:_FEW])}`",
    )


def _no_steps(facts: JobFacts) -> _Found:
    if facts.unknown == NO_STEP and facts.seconds_in("run") >= _RUN_S:
        yield (
            0.0,
            "its lines show no step: how much of its time trained is unknown; print step=N, or name a "
            "pattern (ranklift.metrics in the job file)",
        )


_RULES: tuple[Callable[[JobFacts], _Found], ...] = (
    *(_environment, _data, _queue, _gpus, _checkpoints, _lost_work, _slow_nodes, _no_steps),
)


def _of_total(facts: JobFacts, seconds: float) -> str:
    return f"{duration(seconds)} of {duration(facts.total_s)}"
