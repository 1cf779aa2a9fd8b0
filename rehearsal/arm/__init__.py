"""Azure Resource Manager on this machine: its HTTP endpoint over an in-memory subscription."""

from rehearsal.arm.app import SUBSCRIPTION, listen, make_app
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.operations import Fault, Faults
from rehearsal.arm.core.subscription import Subscription

__all__ = ["SUBSCRIPTION", "ArmError", "Fault", "Faults", "Subscription", "listen", "make_app"]
