"""Lines for a node's shell that run as its agent: the nodes' user has no metadata service."""

from __future__ import annotations

import base64

from images.cloud_init import AGENT_USER

__all__ = ["as_agent"]


def as_agent(line: str) -> str:
    """Return a shell line that runs ``line`` in a unit of the agent's user, with its output and exit status.

    It can only be had on a rehearsed node, whose users all have one id.
    """
    coded = base64.b64encode(line.encode()).decode()
    unit = f"[Service]\\nUser={AGENT_USER}\\nExecStart=sh %s/line\\n"
    return (
        f'folder=$(mktemp -d) && printf "{unit}" "$folder" >/etc/systemd/system/asks.service && '
        f'echo {coded} | base64 -d >"$folder/line" && rm -f /var/log/asks.log && '
        "/etc/rehearsal/bin/keep asks.service; status=$?; "
        'cat /var/log/asks.log; rm -r "$folder"; exit $status'
    )
