"""Long-running operations: started by a write, asked about until they end."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from launch.errors import RankliftError
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.ids import ResourceId

__all__ = ["Fault", "Faults", "Operation", "Operations"]

_HOLD = 1.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault of one operation: ``delay`` seconds more, then ``error`` if there is one.

    With ``at_request`` the error answers the request itself, as quota and SKU refusals do: nothing starts.
    """

    delay: float = 0.0
    error: ArmError | None = None
    at_request: bool = False
    held: bool = False
    """Whether the operation waits until ``free`` is set."""
    free: asyncio.Event = field(default_factory=asyncio.Event, compare=False)


Faults = Callable[[str, ResourceId], Fault | None]
"""Called once for every write, with ``put``, ``patch``, ``delete`` or ``post``; None lets the write pass."""


@dataclass(slots=True)
class Operation:
    """One write under way. ``result`` is the final answer of a POST."""

    id: str
    namespace: str
    location: str
    done: asyncio.Event = field(default_factory=asyncio.Event)
    error: ArmError | None = None
    result: Any = None
    subject: ResourceId | None = None
    """Resource that it creates or changes."""

    @property
    def path(self) -> str:
        """Path of its status, below the subscription."""
        return f"/providers/{self.namespace}/locations/{self.location}/operations/{self.id}"

    @property
    def result_path(self) -> str:
        """Path of its result, below the subscription."""
        return f"/providers/{self.namespace}/locations/{self.location}/operationResults/{self.id}"

    @property
    def status(self) -> str:
        """Azure's name of its state."""
        if not self.done.is_set():
            return "InProgress"
        return "Failed" if self.error else "Succeeded"

    async def hold(self) -> None:
        """Wait up to :data:`_HOLD` seconds for the end: a poll then costs little and returns soon."""
        try:
            await asyncio.wait_for(self.done.wait(), _HOLD)
        except TimeoutError:
            return

    def body(self) -> dict[str, Any]:
        """Return the body of its status."""
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
        """Return the operation of this id."""
        return self._known.get(operation_id)

    def start(
        self,
        namespace: str,
        location: str,
        work: Coroutine[Any, Any, Any],
        fault: Fault | None,
        ended: Callable[[Operation], None] = lambda _: None,
    ) -> Operation:
        """Run ``work`` in the background; call ``ended`` before the status shows the end."""
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
        """Cancel what is still under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
