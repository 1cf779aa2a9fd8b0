"""Long-running operations: started by a write, asked about until they end."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from launch.errors import RankliftError
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.ids import ResourceId

if TYPE_CHECKING:
    from rehearsal.arm.core.subscription import Subscription

__all__ = ["Fault", "Faults", "Operation", "Operations", "Scarcity"]

_HOLD = 1.0


@dataclass(frozen=True, slots=True)
class Fault:
    """What befalls one operation: ``delay`` seconds more, then ``error`` if there is one.

    With ``at_request`` the error answers the request itself, as quota and SKU refusals do: nothing starts.
    """

    delay: float = 0.0
    error: ArmError | None = None
    at_request: bool = False
    held: bool = False
    """Goes on only when ``free`` is set."""
    free: asyncio.Event = field(default_factory=asyncio.Event, compare=False)


class Faults(Protocol):
    """Consulted once for every write; None lets it pass."""

    def __call__(self, verb: str, resource: ResourceId) -> Fault | None:
        """``verb`` is ``put``, ``patch``, ``delete`` or ``post``."""


@runtime_checkable
class Scarcity(Protocol):
    """Consulted when a scale set grows, by whoever is a fault besides."""

    def refuse_growth(
        self, subscription: Subscription, resource: ResourceId, size: str, location: str, more: int
    ) -> None:
        """Raises Azure's refusal of ``more`` VMs, before anything has changed."""

    def granted(self, wanted: int) -> tuple[int, ArmError | None]:
        """How many of the VMs wanted come, and what is said of the others."""


@dataclass(slots=True)
class Operation:
    """One write under way. ``result`` is what a POST answers in the end."""

    id: str
    namespace: str
    location: str
    done: asyncio.Event = field(default_factory=asyncio.Event)
    error: ArmError | None = None
    result: Any = None
    subject: ResourceId | None = None
    """What it makes or changes."""

    @property
    def path(self) -> str:
        """Where its status is asked, below the subscription."""
        return f"/providers/{self.namespace}/locations/{self.location}/operations/{self.id}"

    @property
    def result_path(self) -> str:
        """Where its result is asked."""
        return f"/providers/{self.namespace}/locations/{self.location}/operationResults/{self.id}"

    @property
    def status(self) -> str:
        """Azure's word."""
        if not self.done.is_set():
            return "InProgress"
        return "Failed" if self.error else "Succeeded"

    async def hold(self) -> None:
        """Waits a moment for the end, so that asking again and again costs little and learns soon."""
        try:
            await asyncio.wait_for(self.done.wait(), _HOLD)
        except TimeoutError:
            return

    def body(self) -> dict[str, Any]:
        """The answer to a question for its status."""
        shown: dict[str, Any] = {"id": self.id, "name": self.id, "status": self.status}
        if self.error:
            shown["error"] = self.error.body()
        return shown


class Operations:
    """All operations of a subscription."""

    def __init__(self) -> None:
        self._known: dict[str, Operation] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def get(self, operation_id: str) -> Operation | None:
        """The operation of this id."""
        return self._known.get(operation_id)

    def start(
        self,
        namespace: str,
        location: str,
        work: Coroutine[Any, Any, Any],
        fault: Fault | None,
        ended: Callable[[Operation], None],
    ) -> Operation:
        """Runs ``work`` in the background; ``ended`` is called before anyone learns of the end."""
        operation = Operation(str(uuid.uuid4()), namespace, location)
        self._known[operation.id] = operation
        task = asyncio.create_task(self._run(operation, work, fault, ended))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return operation

    async def _run(
        self,
        operation: Operation,
        work: Coroutine[Any, Any, Any],
        fault: Fault | None,
        ended: Callable[[Operation], None],
    ) -> None:
        try:
            if fault and fault.delay:
                await asyncio.sleep(fault.delay)
            if fault and fault.held:
                await fault.free.wait()
            if fault and fault.error:
                operation.error = fault.error
            else:
                operation.result = await work
        except ArmError as error:
            operation.error = error
        except (RankliftError, OSError) as error:
            problem = f"An internal execution error occurred. {error}"
            operation.error = ArmError(500, "InternalExecutionError", problem)
        finally:
            work.close()
            ended(operation)
            operation.done.set()

    async def close(self) -> None:
        """Cancels what is still under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
