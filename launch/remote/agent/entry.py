"""Where a node has the agent's program, which a leader starts on other nodes too, and what it grants."""

import os

__all__ = ["GRANT", "GRANTED", "NAMESPACE", "SIGNER", "STATE", "VERIFY", "WATCH"]

WATCH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "watch.py")
"""``launch/remote/__main__.py`` under the name that cloud-init gives it."""
STATE = "/var/lib/ranklift"
"""The agent's own folder, which outlives a reboot."""
GRANTED = "identity"
"""In that folder, a file for each job that was granted the nodes' identity on this node: it is not empty once
the job's ranks may start."""
VERIFY, GRANT = "/ranklift/identity/verify", "/ranklift/identity/grant"
"""Paths of the requests to verify a signature, and to grant the identity while the connection lasts."""
SIGNER, NAMESPACE = "operator", "ranklift-identity"
"""Whose signature grants it, and the namespace of ``ssh-keygen -Y``, in which that key signs nothing else."""
