"""Where a node has the agent's program: a leader starts it here, and by the same path on other nodes."""

import os

__all__ = ["WATCH"]

WATCH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "watch.py")
"""``launch/remote/__main__.py`` under the name that cloud-init gives it."""
