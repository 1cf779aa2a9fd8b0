"""One question to Pulumi, or one change of its configuration: anything but an update."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from launch.errors import MissingTool, RankliftError, StepTimeout

__all__ = ["PulumiError", "pulumi_program", "query"]

QUERY_S = 60.0
"""Limit of one query to Pulumi, which is not an update."""
_SHUTDOWN_S = 5.0
"""Limit of Pulumi's orderly shutdown after an interrupt."""


class PulumiError(RankliftError):
    """Pulumi failed; the text is its own, unless it is signed in nowhere."""


def pulumi_program(environment: Mapping[str, str]) -> str:
    """Return the path of Pulumi; raise :class:`~launch.errors.MissingTool` when it is not on PATH."""
    found = shutil.which("pulumi", path=environment.get("PATH"))
    if found is None:
        cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        kept = sorted((cache / "ranklift" / "pulumi").glob("*/pulumi"))  # where `make setup` keeps it
        remedy = "or run `make setup` in a checkout of Ranklift"
        if kept:
            remedy = f'as by export PATH="$PATH:{kept[-1].parent}"'
        raise MissingTool("pulumi", f"put it on PATH, {remedy}")
    return found


def query(
    arguments: list[str], project: Path, environment: Mapping[str, str], given: str | None = None
) -> str:
    """Return what a command of Pulumi's prints; ``given`` is its stdin.

    Raises :class:`PulumiError` with what Pulumi says, :class:`~launch.errors.StepTimeout`, and
    :class:`~launch.errors.MissingTool` without Pulumi.
    """
    command = [pulumi_program(environment), *arguments, "--non-interactive"]
    with subprocess.Popen(
        command,
        cwd=project,
        env={**environment, "PULUMI_SKIP_UPDATE_CHECK": "1"},
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            out, errors = process.communicate(given, timeout=QUERY_S)
        except subprocess.TimeoutExpired:
            _end(process, is_interrupted=False)
            raise StepTimeout("pulumi", " ".join(arguments[:2]), QUERY_S) from None
        except BaseException:
            _end(process, is_interrupted=True)
            raise
    if process.returncode != 0:
        text = errors.strip() or _diagnosed(out.strip())
        if process.returncode < 0:
            text = f"was killed by {signal.Signals(-process.returncode).name}; repeat the command"
        raise PulumiError(f"pulumi {' '.join(arguments[:2])}: {text.removeprefix('error: ')}")
    return out


def _end(process: subprocess.Popen[str], *, is_interrupted: bool) -> None:
    """Let Pulumi shut down in order: killed, it leaves its plugins running, in process groups of their own.

    ``is_interrupted``: it has Ctrl-C already, as the terminal's; a second one would end it at once.
    """
    try:
        if is_interrupted:
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=_SHUTDOWN_S)
                return
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_SHUTDOWN_S)
    finally:
        process.kill()


def _diagnosed(text: str) -> str:
    """Return the errors in the JSON of a preview that failed; any other text as it is.

    >>> _diagnosed('{"diagnostics": [{"severity": "error", "message": "error: no such size"}]}')
    'no such size'
    """
    try:
        found = json.loads(text)["diagnostics"]
    except (ValueError, KeyError, TypeError):
        return text
    errors = [str(one["message"]) for one in found if one.get("severity") == "error"]
    return "\n".join(error.strip().removeprefix("error: ") for error in errors)
