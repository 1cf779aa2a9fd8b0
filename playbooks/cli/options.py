"""Readers of option values as users write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar, get_args

from launch.errors import InputError
from launch.expressions import MARK
from launch.numbers import MOST, bounded
from launch.remote.base.health_records import HealthMode

__all__ = [
    "HANG_HELP",
    "HEALTH_HELP",
    "METRIC_HELP",
    "PROBE",
    "RECORDER_HELP",
    "health_flag",
    "metrics_flag",
    "number",
    "one_of",
    "probe_flag",
    "processes_flag",
    "restarts_flag",
    "variables",
]

_Known = TypeVar("_Known", bound=str)

HEALTH_HELP = (
    "what is done about a node that is not as its VM size promises: strict refuses the job for errors, warn "
    "shows them, off does not look"
)
METRIC_HELP = (
    "a number that ranks print: NAME=PATTERN, with one group around it, e.g. 'psnr=PSNR: ([0-9.]+)'; may be "
    "repeated; step, loss, samples_per_s and checkpoint_s are found in common frameworks' lines"
)
HANG_HELP = (
    "look at the ranks, and end the job unless they move, once none of them has printed anything for so long"
)
RECORDER_HELP = "do not switch on PyTorch's flight recorder, which `fab debug` reads"
IDENTITY_HELP = (
    "ranks reach the nodes' metadata service, and so may do what the nodes' identity may; a job file that "
    "asks for it needs this, or a yes at the terminal (default: none does)"
)
PROBE = {
    "probe": "prove that nodes reach each other over InfiniBand before any rank starts "
    "(default: when the head uses these nodes for the first time)",
    "no_probe": "start without that proof, over whatever network the ranks find",
}
"""Options of every launch for the proof, with their help."""


def variables(given: Sequence[str], environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return ``NAME=VALUE`` pairs as a mapping; ``NAME`` alone takes its value from ``environ``.

    >>> variables(["A=1", "B=x=y z", "TOKEN"], {"TOKEN": "secret"})
    {'A': '1', 'B': 'x=y z', 'TOKEN': 'secret'}

    Raises :class:`~launch.errors.InputError`, without any value, for a name that is missing, given twice or
    not in ``environ``.
    """
    found: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not name:
            raise InputError("--env", None, "has a value without a name", "write it like --env LR=0.1")
        if name in found:
            raise InputError("--env", name, "is given a second time", "give each name once")
        if not equals and name not in environ:
            remedy = f"export {name}, or give its value as --env {name}=VALUE"
            raise InputError("--env", name, "is not set in the environment of this command", remedy)
        if MARK in value:
            problem = f"has {MARK}, and no expression is replaced in an option"
            remedy = "write the value itself, or set the variable in environment_variables of a job file"
            raise InputError(f"--env {name}", None, problem, remedy)
        found[name] = value if equals else environ[name]
    return found


def processes_flag(text: str) -> int | Literal["auto"]:
    """Return the value of ``--nproc-per-node``: a number, or ``auto`` for one process per slot.

    >>> processes_flag("8"), processes_flag("auto")
    (8, 'auto')

    Raises :class:`~launch.errors.InputError` for anything else.
    """
    if text == "auto":
        return "auto"
    return number("--nproc-per-node", text, "processes", "give 1 or more, or auto", low=1)


def number(
    flag: str, text: str, of: str, remedy: str = "give 0 or more", *, low: int = 0, high: int = MOST
) -> int:
    """Return a whole number; Invoke's own reader ends with a traceback for anything else.

    >>> number("--last", "20", "jobs")
    20

    Raises :class:`~launch.errors.InputError` for anything else, naming what it is a number ``of``.
    """
    return bounded(flag, text, low, high, problem=f"is not a number of {of}", remedy=remedy)


def one_of(flag: str, text: str | None, known: Sequence[_Known], problem: str, remedy: str) -> _Known | None:
    """Return which of the ``known`` words an option was given; None when it was not given.

    >>> one_of("--health", "warn", ("off", "warn"), "is not a mode", "give off or warn")
    'warn'

    Raises :class:`~launch.errors.InputError` for anything else, with this ``problem`` and ``remedy``.
    """
    if text is None:
        return None
    for word in known:
        if text == word:
            return word
    raise InputError(flag, text, problem, remedy)


def health_flag(text: str | None) -> HealthMode | None:
    """Return the value of ``--health``; None when it was not given.

    >>> health_flag("warn"), health_flag(None)
    ('warn', None)

    Raises :class:`~launch.errors.InputError` for anything else.
    """
    return one_of("--health", text, get_args(HealthMode), "is not a mode", "give off, warn or strict")


def probe_flag(probe: bool, no_probe: bool) -> bool | None:
    """Return what ``--probe`` and ``--no-probe`` ask for; None without either.

    Raises :class:`~launch.errors.InputError` for both.
    """
    if probe and no_probe:
        raise InputError("--probe", None, "cannot be combined with --no-probe", "give one of the two")
    return True if probe else False if no_probe else None


def metrics_flag(given: Sequence[str]) -> Mapping[str, str]:
    """Return the patterns of ``--metric``, by name.

    >>> metrics_flag(["psnr=PSNR: ([0-9.]+)"])
    {'psnr': 'PSNR: ([0-9.]+)'}

    Raises :class:`~launch.errors.InputError` for what is not ``NAME=PATTERN``, and for a name given twice.
    """
    found: dict[str, str] = {}
    for text in given:
        name, equals, pattern = text.partition("=")
        if not equals or not name or not pattern:
            remedy = "write it like --metric 'psnr=PSNR: ([0-9.]+)'"
            raise InputError("--metric", text, "is not NAME=PATTERN", remedy)
        if name in found:
            raise InputError("--metric", name, "is given twice", "give one pattern, (?:a|b) for two forms")
        found[name] = pattern
    return found


def restarts_flag(text: str | None) -> int | None:
    """Return the value of ``--max-restarts``; None when it was not given.

    >>> restarts_flag("3"), restarts_flag(None)
    (3, None)

    Raises :class:`~launch.errors.InputError` for anything else.
    """
    return None if text is None else number("--max-restarts", text, "restarts")
