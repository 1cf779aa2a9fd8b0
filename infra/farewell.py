"""The name by which the states of older stacks import the teardown report.

Pulumi keeps a dynamic provider's code in the stack's state. That code finds the program's folder by this file
and imports ``infra.farewell.farewell`` or, since, ``infra.cluster.teardown_report.report_leftovers``.
"""

from infra.cluster.teardown_report import report_leftovers as farewell

__all__ = ["farewell"]
