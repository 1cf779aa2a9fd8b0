"""Everything Ranklift raises on purpose, branching by what the caller can do next.

::

    RankliftError
    ├── InputError            correct the input: names the key, its value and the remedy
    │   ├── InputErrors       several inputs are wrong; carries each
    │   └── NoSuchJob         none of the nodes queried has records of that job
    ├── RetryError            the same call may succeed later
    │   ├── NodeUnreachable   no answer from a node
    │   ├── NotPushed         a job was submitted before the code it runs
    │   └── StepTimeout       a control step took longer than its limit
    ├── ReplaceNodeError      this node will not recover by itself
    │   └── HostKeyChanged    a node showed another key than the one pinned for its stack
    ├── ManyNodesError        some nodes of a many-node call failed; carries every node's result
    └── GiveUpError           nothing left to try
        ├── JobFailed         a job ended otherwise than SUCCEEDED; carries its exit status
        └── MissingTool       this machine lacks something the project cannot bring itself

This is the one module that every package may import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "GiveUpError",
    "HostKeyChanged",
    "InputError",
    "InputErrors",
    "JobFailed",
    "ManyNodesError",
    "MissingTool",
    "NoSuchJob",
    "NodeUnreachable",
    "NotPushed",
    "RankliftError",
    "ReplaceNodeError",
    "RetryError",
    "StepTimeout",
]


_SHOWN = 1000
"""Characters of a value that an error shows."""


class RankliftError(Exception):
    """Root of the tree: catch it to catch everything the project raises on purpose."""


class InputError(RankliftError, ValueError):
    """An input is wrong; nothing has been created, connected or changed.

    >>> raise InputError("nodeCount", 0, "must be at least 1", "set it to the number of VMs wanted")
    Traceback (most recent call last):
    ...
    launch.errors.InputError: nodeCount = 0: must be at least 1; set it to the number of VMs wanted
    """

    def __init__(self, key: str, value: object, problem: str, remedy: str) -> None:
        self.key, self.value, self.problem, self.remedy = key, value, problem, remedy
        if isinstance(value, str) and len(value) > _SHOWN:
            value = f"{value[:_SHOWN]}…"
        shown = "" if value is None else f" = {value!r}" if isinstance(value, str) else f" = {value}"
        super().__init__(f"{key}{shown}: {problem}; {remedy}")


class InputErrors(InputError):
    """Several inputs are wrong: ``errors`` has each, and the text a line for each.

    >>> raise InputErrors([InputError(key, 1, "is odd", "double it") for key in "ab"])
    Traceback (most recent call last):
    ...
    launch.errors.InputErrors: a = 1: is odd; double it
    b = 1: is odd; double it
    """

    def __init__(self, errors: Sequence[InputError]) -> None:
        first = errors[0]
        super().__init__(first.key, first.value, first.problem, first.remedy)
        self.errors = tuple(errors)
        self.args = ("\n".join(map(str, errors)),)


class NoSuchJob(InputError):
    """None of the nodes queried has records of ``job``: it never existed, or its records were removed."""

    def __init__(self, job: str | None, problem: str) -> None:
        self.job = job
        super().__init__(
            "job", job, problem, f"see `fab jobs`; `fab cancel {job}` ends what still runs of it"
        )


class RetryError(RankliftError):
    """The same call may succeed later."""


class _NodeError(Exception):
    def __init__(self, node: str, reason: str) -> None:
        self.node, self.reason = node, reason
        super().__init__(f"{node}: {reason}")


class NodeUnreachable(_NodeError, RetryError, ConnectionError):
    """No answer from ``node``."""


class StepTimeout(RetryError, TimeoutError):
    """A control step on ``node`` took longer than ``seconds``."""

    def __init__(self, node: str, step: str, seconds: float) -> None:
        self.node, self.step, self.seconds = node, step, seconds
        super().__init__(f"{node}: {step} did not end within {seconds:g} s")


class NotPushed(_NodeError, RetryError):
    """The head ``node`` got a job whose code it, or another node of the job, lacks: push the code first.

    Also raised for a query when ``node`` lacks the code that ran the job.
    """


class ReplaceNodeError(_NodeError, RankliftError):
    """``node`` will not recover by itself."""


class HostKeyChanged(ReplaceNodeError):
    """``node`` showed another host key than the one pinned for its stack."""


class ManyNodesError(RankliftError):
    """Some nodes of a many-node call failed.

    ``results`` maps every node called to its result or its error; ``str()`` folds the names of nodes with
    equal errors.
    """

    def __init__(self, what: str, results: Mapping[str, Any]) -> None:
        from launch.remote.base.names import fold

        self.what, self.results = what, results
        alike: dict[str, list[str]] = {}
        for node, error in self.errors.items():
            alike.setdefault(str(error).removeprefix(f"{node}: "), []).append(node)
        lines = [f"{fold(nodes)}: {text}" for text, nodes in alike.items()]
        super().__init__(f"{what} failed on {len(self.errors)} of {len(results)} nodes\n" + "\n".join(lines))

    @property
    def errors(self) -> dict[str, Exception]:
        """The errors of failed nodes, by node."""
        return {node: r for node, r in self.results.items() if isinstance(r, Exception)}


class GiveUpError(RankliftError):
    """Nothing left to try."""


class JobFailed(GiveUpError):
    """Job ``job`` ended in ``state``; ``exit_status`` is its first failing rank's (128+n for signal n)."""

    def __init__(self, job: str, state: str, exit_status: int, reason: str) -> None:
        self.job, self.state, self.exit_status, self.reason = job, state, exit_status, reason
        super().__init__(f"job {job} {state}: {reason}" if reason else f"job {job} {state}")


class MissingTool(GiveUpError):
    """This machine lacks ``tool``."""

    def __init__(self, tool: str, remedy: str) -> None:
        self.tool, self.remedy = tool, remedy
        super().__init__(f"{tool} is missing: {remedy}")
