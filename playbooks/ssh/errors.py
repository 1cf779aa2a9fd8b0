"""What paramiko and the socket layer raise, as the project's own errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import paramiko

from launch.errors import HostKeyChanged, NodeUnreachable, StepTimeout

__all__ = ["translated"]


@contextmanager
def translated(node: str, where: str, limit: float) -> Iterator[None]:
    """Raise exceptions of paramiko and the socket layer as the project's own.

    ``where`` is the node's address and port, ``limit`` the seconds that a connection may take.
    """
    try:
        yield
    except paramiko.BadHostKeyException as error:
        shown, pinned = error.key.fingerprint, error.expected_key.fingerprint
        problem = f"{where} shows host key {shown}, not the pinned {pinned}; nothing was sent to it"
        raise HostKeyChanged(node, problem) from error
    except paramiko.ssh_exception.IncompatiblePeer as error:
        raise HostKeyChanged(node, f"{where} has no ed25519 host key to show: {error}") from error
    except paramiko.AuthenticationException as error:
        raise NodeUnreachable(node, f"{where} refuses this stack's key: {error}") from error
    except TimeoutError as error:
        if isinstance(error, StepTimeout):
            raise
        raise NodeUnreachable(node, f"no answer from {where} within {limit:g} s") from error
    except paramiko.ssh_exception.NoValidConnectionsError as error:
        reasons = {e.strerror for e in error.errors.values() if isinstance(e, OSError)}
        reason = "; ".join(sorted(str(text) for text in reasons))
        raise NodeUnreachable(node, f"{where}: {reason}") from error
    except NodeUnreachable:
        raise
    except (paramiko.SSHException, OSError, EOFError) as error:
        # A load balancer takes the connection and drops it when the node behind it is gone.
        gone = isinstance(error, (EOFError, ConnectionResetError)) or "banner" in str(error)
        reason = "the connection is closed before any sshd answers" if gone else str(error)
        raise NodeUnreachable(node, f"{where}: {reason or type(error).__name__}") from error
