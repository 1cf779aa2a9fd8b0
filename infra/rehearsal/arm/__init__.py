"""Azure Resource Manager on this machine: its HTTP endpoint over an in-memory subscription."""

from infra.rehearsal.arm.app import SUBSCRIPTION, listen, make_app
from infra.rehearsal.arm.errors import ArmError
from infra.rehearsal.arm.operations import Fault, Faults
from infra.rehearsal.arm.subscription import Subscription

__all__ = ["SUBSCRIPTION", "ArmError", "Fault", "Faults", "Subscription", "listen", "make_app"]
