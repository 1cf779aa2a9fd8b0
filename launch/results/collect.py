"""Collection of a job's files: through its head, or directly from nodes where the head is unavailable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, TypeVar

from launch.client.rpc import check, rpc_argv, version_there
from launch.errors import GiveUpError, InputError, NodeUnreachable, RankliftError, ReplaceNodeError
from launch.host import Host
from launch.nodeset import fold
from launch.remote.base import frames, job_dir, timing
from launch.remote.base.files import read_regular
from launch.remote.collect import relay, send
from launch.remote.reading import Malformed, NodeName, parse, read
from launch.results.download import CollectReport, NodeFetch, NodeFiles, Progress
from launch.results.folder import Results

__all__ = ["Others", "collect"]

_Result = TypeVar("_Result")

_SLOWEST = 100_000
"""Slowest transfer in bytes a second; a slower one times out and may be retried."""
_NODES = 1000
"""Nodes of a scale set, which are the most that a job can have
(https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-placement-groups)."""
_NAMES = 1 << 20
"""Bytes of their names."""
_LONGEST_REASON = 4096


class _NamedNode(TypedDict):
    """What is needed of a plan's node."""

    name: NodeName


@dataclass(frozen=True, slots=True)
class Others:
    """Direct access to nodes, past the job's head."""

    names: Sequence[str]
    visit: Callable[[Callable[[Host], None], Iterable[str]], Mapping[str, Exception | None]]
    """Function that applies another to these nodes' hosts, many at once, and returns each node's error."""
    say: Callable[[str], object]
    """Function that reports direct access and its reason."""


def collect(
    job: str,
    head: Host | None,
    into: Path,
    *,
    remote: str | None,
    others: Others | None = None,
    show: Callable[[Progress], object] = lambda _: None,
    work: str | None = None,
) -> CollectReport:
    """Fetch the job's missing logs, outputs and records from all its nodes into ``into/<job>/``.

    A repeated call, after an interruption too, fetches what is still missing. Files come through ``head``;
    nodes that the head cannot reach, and all others when the head is unreachable or None, are queried by
    ``others``. ``remote`` is the node code's id, None for the newest that a node has. Nodes that do not
    answer either way are in the report's ``results`` with their error. ``show`` is called for every piece.
    With ``work`` also what the job left in its working folders is fetched: what fits that pattern, all of it
    where that is empty.

    Raise :class:`~launch.errors.InputError` when the head has no such job or the folder cannot be made,
    :class:`~launch.errors.RetryError` when the folder is full or another collect works in it.
    """
    results = Results(into, job)
    run = _Run(job, results, Progress(show), remote, head, work)
    complete = False
    try:
        if head is not None:
            run.through_head(head)
        if others is not None:
            run.directly(others)
        elif run.without_head is not None:
            raise run.without_head
        report = run.report()
        complete = report.is_complete
    finally:
        run.close()
        results.close(complete=complete)
    return report


class _Run:
    """One run of :func:`collect`."""

    def __init__(
        self,
        job: str,
        results: Results,
        progress: Progress,
        remote: str | None,
        head: Host | None,
        work: str | None,
    ) -> None:
        self.without_head: RankliftError | None = None
        self._job, self._results, self._progress, self._remote = job, results, progress, remote
        self._head = None if head is None else head.name
        self._match = work or ""
        self._more = () if work is None else ("work",)
        """Further words of the request for a listing."""
        self._names: list[str] = []
        """The job's nodes as listed by the head; empty before the list arrives."""
        self._fetches: dict[str, NodeFetch] = {}
        self._errors: dict[str, Exception] = {}
        self._claims: dict[str, str] = {}

    def close(self) -> None:
        for fetch in self._fetches.values():
            fetch.close()

    def report(self) -> CollectReport:
        found: dict[str, NodeFiles | Exception] = {}
        for name in dict.fromkeys([*self._names, *self._errors, *self._fetches]):
            error = self._errors.get(name)
            if error is not None:
                found[name] = error
            elif self._names or self._fetches[name].has_folder:
                found[name] = self._fetches[name].result()
        return CollectReport(self._results.folder, found, str(self.without_head or ""))

    def _fetch(self, name: str) -> NodeFetch:
        if name not in self._fetches:
            self._fetches[name] = NodeFetch(name, self._results, self._progress, self._claims, self._match)
        return self._fetches[name]

    # -- through the head -------------------------------------------------------------------------

    def through_head(self, head: Host) -> None:
        """Fetch through the head; store the error that prevented or ended this in :attr:`without_head`."""
        try:
            self._relay(head, ("files", *self._more), b"")
            requests = [
                b"%d " % index + line
                for index, name in enumerate(self._names)
                if name not in self._errors
                for line in self._requests(name, is_head=index == 0).splitlines(keepends=True)
            ]
            if requests:
                size = sum(fetch.asked_for for fetch in self._fetches.values())
                self._relay(head, ("send",), b"".join(requests), size)
            for name in self._names:
                if name not in self._errors:
                    self._attempt(name, self._fetch(name).check)
        except InputError:
            raise
        except RankliftError as error:
            if self._results.broken is not None:
                raise
            self.without_head = error

    def _relay(self, head: Host, what: Sequence[str], requests: bytes, size: int = 0) -> None:
        decoder = frames.Decoder()

        def take(data: bytes) -> None:
            for kind, payload in decoder.feed(data):
                if kind == relay.NODES:
                    self._take_names(payload)
                elif kind == relay.PIECE:
                    self._on_part(payload)

        with _well_formed(head.name):
            command = rpc_argv(self._remote or "", "relay", self._job, *what)
            check(head.stream(command, take, stdin=requests, timeout=_limit(size)), head, self._job)

    def _take_names(self, payload: bytes) -> None:
        """Take the names of the job's nodes, which the stack may have no more. Each answer has the same."""
        if len(payload) > _NAMES:
            raise frames.ProtocolError(f"a list of nodes of {len(payload)} bytes")
        names = read(list[NodeName], parse(payload))
        if len(names) > _NODES or len({*names}) < len(names):
            raise frames.ProtocolError(
                f"a list of nodes with {len(names)} names, of which {len({*names})} differ"
            )
        if self._names not in ([], names):
            raise frames.ProtocolError("another list of nodes than before")
        self._names = names

    def _on_part(self, payload: bytes) -> None:
        if len(payload) < relay.PART.size:
            raise frames.ProtocolError(f"a piece of {len(payload)} bytes")
        index, last = relay.PART.unpack_from(payload)
        if not 0 <= index < len(self._names):
            raise frames.ProtocolError(f"a piece of node {index} of {len(self._names)}")
        self._on_piece(self._names[index], payload[relay.PART.size :], last=last)

    def _on_piece(self, name: str, piece: bytes, *, last: bool) -> None:
        if name in self._errors:
            return
        if not last:
            self._attempt(name, lambda: self._fetch(name).take(piece))
        elif piece:
            self._errors[name] = NodeUnreachable(name, piece[:_LONGEST_REASON].decode("utf-8", "replace"))

    def _requests(self, name: str, *, is_head: bool) -> bytes:
        return self._attempt(name, lambda: self._fetch(name).requests(is_head=is_head)) or b""

    def _attempt(self, name: str, step: Callable[[], _Result]) -> _Result | None:
        """Run ``step``; record its error for the node, unless nothing can be written here any more."""
        try:
            with _well_formed(name):
                return step()
        except RankliftError as error:
            if self._results.broken is not None:
                raise
            self._errors[name] = error
        return None

    # -- from the nodes themselves ----------------------------------------------------------------

    def directly(self, others: Others) -> None:
        """Fetch the files that are still missing directly from their nodes."""
        failed = self.without_head
        if self._head is None or failed is not None:
            self._names = self._names or self._remembered()
            gone = {self._head} if isinstance(failed, (NodeUnreachable, ReplaceNodeError)) else set()
            names = [name for name in self._names or others.names if name not in gone]
            self._errors = {name: failed for name in gone if name is not None and failed is not None}
            if failed is not None:
                others.say(f"the job's head does not answer ({failed}): querying {fold(names)} directly")
        else:
            names = list(self._errors)
            if left := [name for name in names if name in others.names]:
                others.say(f"the head {self._head} cannot send all files of {fold(left)}: querying directly")
        for name in names:
            if name not in others.names:
                problem = "was removed from the stack, with its files of the job"
                if self._head is not None and failed is None:
                    problem += "; `fab logs` has what its ranks printed, as far as the head kept it"
                self._errors[name] = NodeUnreachable(name, problem)
        there = [name for name in names if name in others.names]
        for name, error in others.visit(self._visit, there).items():
            self._errors.pop(name, None)
            if error is not None:
                self._errors[name] = error
        if self._results.broken is not None:
            raise self._results.broken

    def _visit(self, host: Host) -> None:
        fetch = self._fetch(host.name)
        fetch.again()
        version = version_there(host, self._remote)
        if version is None:
            if not self._names:  # any node of the stack may be queried: one without code had no job
                return
            raise GiveUpError(f"{host.name} has no node code of the project")
        try:
            with _well_formed(host.name):
                self._ask(host, fetch, rpc_argv(version, "files", self._job, *self._more))
                is_head = fetch.is_of_head if self._head is None else host.name == self._head
                requests = fetch.requests(is_head=is_head)
                if requests:
                    self._ask(host, fetch, rpc_argv(version, "send", self._job), requests)
                fetch.check()
        finally:
            fetch.close()

    def _ask(self, host: Host, fetch: NodeFetch, command: Sequence[str], requests: bytes = b"") -> None:
        limit = _limit(fetch.asked_for)
        check(host.stream(command, fetch.take, stdin=requests, timeout=limit), host)

    def _remembered(self) -> list[str]:
        """Return the job's nodes from the plan that an earlier collect fetched; empty without one."""
        try:
            plan = job_dir.parse_plan(read_regular(str(self._results.folder / send.PLAN)))
            return [node["name"] for node in read(list[_NamedNode], plan["nodes"])]
        except (OSError, job_dir.Unreadable, Malformed):
            return []


@contextmanager
def _well_formed(name: str) -> Iterator[None]:
    """Raise :class:`~launch.errors.GiveUpError` where the answer of the node is malformed."""
    try:
        yield
    except RankliftError:
        raise
    except (frames.ProtocolError, Malformed) as error:
        raise GiveUpError(f"{name}: its answer is malformed ({error})") from error


def _limit(size: int) -> float:
    return timing.COLLECT_LISTING_S + size / _SLOWEST
