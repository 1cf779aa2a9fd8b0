"""A job's phases, goodput and advice as text, below its record."""

from __future__ import annotations

from launch.durations import span as duration
from launch.numbers import counted
from launch.remote.base.messages import size
from launch.report.advice import advise
from launch.report.facts import JobFacts, read_lines

__all__ = ["goodput_text", "summary"]

_WIDTH = 20


def summary(facts: JobFacts) -> str:
    """Return the text; empty for a job whose node code records no phases."""
    if not facts.spans:
        return ""
    lines = ["phases"]
    for span in facts.spans:
        moved = f", {size(span.bytes)}" if span.bytes else ""
        again = f", restart {span.attempt}" if span.attempt else ""
        so_far = " so far" if span.is_open else ""
        verdict = f": {span.verdict}" if span.verdict else ""
        lines.append(f"  {span.title:<{_WIDTH}}  {duration(span.seconds):>8}{so_far}{moved}{again}{verdict}")
    lines.append(f"goodput   {goodput_text(facts)}")
    lines += [f"advice    {text}" for text in advise(facts)]
    lines += [f"read      {number} from {who}: {line}" for number, who, line in read_lines(facts)]
    return "".join(f"{line}\n" for line in lines)


def goodput_text(facts: JobFacts) -> str:
    """Return goodput in one line, or why it is unknown."""
    goodput = facts.goodput
    if goodput is None:
        return f"unknown: {facts.unknown}"
    words = [
        f"{100 * goodput.share:.0f} %: {duration(goodput.kept_s)} of {duration(goodput.total_s)} in steps "
        "that were kept"
    ]
    if goodput.lost:
        steps = sum(one.steps for one in goodput.lost)
        words.append(f"{counted(round(steps), 'step')} lost ({duration(goodput.lost_s)})")
    if goodput.checkpoints:
        words.append(f"{counted(goodput.checkpoints, 'checkpoint')} ({duration(goodput.checkpoint_s)})")
    return "; ".join(words)
