"""The end of a stack, under the name by which stacks that were made before know it.

Pulumi keeps a dynamic provider's code in the stack's state, and that code imports this module by name.
"""

from infra.cluster.teardown_report import farewell

__all__ = ["farewell"]
