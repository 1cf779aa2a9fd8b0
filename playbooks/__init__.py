"""The operator's commands. A repository of your own needs no more than this as its ``fabfile.py``::

from playbooks import ns

ns.configure({"ranklift": {"project": "../ranklift"}})
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from invoke.collection import Collection

    ns: Collection

__all__ = ["ns"]


def __getattr__(name: str) -> object:
    # Created on demand: an import of playbooks.ssh.connection alone must not import every task.
    if name == "ns":
        from playbooks.cli import signals

        signals.exit_on_interrupt_of_fab()
        from playbooks.tasks import make_collection

        globals()["ns"] = made = make_collection()
        return made
    raise AttributeError(name)
