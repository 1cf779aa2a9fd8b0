"""The request for the nodes' identity, signed on the operator's machine: no node can make one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from launch.errors import GiveUpError, MissingTool
from launch.remote.agent.entry import NAMESPACE

__all__ = ["NotSigned", "signed_request"]

_LIMIT_S = 30.0


class NotSigned(GiveUpError):
    """The stack's user key signs nothing; the text is ssh-keygen's."""


def signed_request(job: str, nodes: Sequence[str], key: Path) -> str:
    """Return the request that lets the job's ranks use the identity on these nodes, once on each.

    ``key`` is the stack's private user key. Raise :class:`NotSigned` and
    :class:`~launch.errors.MissingTool`.
    """
    text = "".join(f"{line}\n" for line in (f"identity {job}", *nodes))
    environment = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
    try:
        done = subprocess.run(
            ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", str(key)],
            input=text,
            capture_output=True,
            text=True,
            env=environment,
            timeout=_LIMIT_S,
            check=False,
        )
    except FileNotFoundError:
        raise MissingTool("ssh-keygen", "install OpenSSH's client, 8.2 or newer") from None
    except subprocess.TimeoutExpired:
        raise NotSigned(f"ssh-keygen did not sign with {key} within {_LIMIT_S:g} s") from None
    if done.returncode or not done.stdout:
        why = " ".join(done.stderr.split())
        raise NotSigned(f"{key} does not sign the job's request for the nodes' identity: {why}")
    return text + done.stdout
