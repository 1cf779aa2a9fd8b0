"""``fab --list`` shows what there is."""

from playbooks import ns

__all__ = ["ns"]
