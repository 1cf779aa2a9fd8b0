"""What a head is asked for, so that it makes a job's environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from launch.environment.environment_spec import (
    Bare,
    BuildEnvironment,
    Environment,
    ImageEnvironment,
    PythonEnvironment,
)

if TYPE_CHECKING:
    from launch.remote.base.payloads import EnvironmentRequest

__all__ = ["request_of"]


def request_of(
    environment: Environment | None,
    nodes: Sequence[tuple[str, str]],
    *,
    runtime: str = "",
    context: str = "",
    wheels: Sequence[str] = (),
) -> EnvironmentRequest | None:
    """Return the request for an environment; None where the nodes themselves are enough.

    ``nodes`` are names and addresses, ``runtime`` is what is to start ranks (empty: what the head has),
    ``context`` the id of the snapshot with a build's files, ``wheels`` the names of the files that are sent.

    >>> request_of(Bare(), []), request_of(None, [])
    (None, None)
    >>> made = request_of(PythonEnvironment("torch", title="requirements.txt"), [("node000000", "10.0.0.4")])
    >>> made["kind"], made["requirements"], made["title"]
    ('python', 'torch', 'requirements.txt')
    """
    if environment is None or isinstance(environment, Bare):
        return None
    request: EnvironmentRequest = {
        "kind": "python",
        "requirements": "",
        "constraints": "",
        "python": "",
        "conda": "",
        "find_links": list(wheels),
        "reference": "",
        "context": context,
        "dockerfile": "",
        "runtime": runtime,
        "title": environment.title,
        "nodes": list(nodes),
    }
    if isinstance(environment, BuildEnvironment):
        return {**request, "kind": "build", "dockerfile": environment.dockerfile}
    packages: PythonEnvironment | None
    if isinstance(environment, ImageEnvironment):
        request["kind"], request["reference"] = "image", environment.reference
        packages = environment.python
    else:
        packages = environment
    if packages is not None:
        for key in ("requirements", "constraints", "python", "conda"):
            request[key] = getattr(packages, key)
    return request
