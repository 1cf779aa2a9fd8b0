"""The runner, a process beside the ranks of a node: starts them, forwards their output, ends their processes.

Without mpirun the supervisor starts one runner per node over ssh; the channel is the runner's stdin and
stdout. mpirun starts one runner per rank, which connects back to the supervisor, so that no value of the
user's is ever on mpirun's command line. The channel is the tether of both: when it closes, or carries nothing
for 30 s, the runner ends everything that it started.

Many runners start at once on few cores in a rehearsal. So this module and its imports use ``_socket`` and
``_signal`` instead of their public modules, which import :mod:`enum`, and not :mod:`typing`, which imports
:mod:`re`: each costs as much as starting the interpreter.
"""

from __future__ import annotations

import os
import sys
import time

from launch.remote.base import eviction, frames, processes, timing
from launch.remote.base.files import expand_home, python_folder, which
from launch.remote.base.processes import SIGKILL, SIGTERM
from launch.remote.node import infiniband, rank_env, slots, work_dir
from launch.remote.node.guardian import fork_under_guardian
from launch.remote.node.loop import NO_LOG, NODE, TICK_MS, Loop, Process, open_log
from launch.remote.node.prepare import (
    Unfit,
    hold_stored,
    lacks,
    missing_modules,
    modules_argv,
    prepare_folder,
)
from launch.remote.node.supervisor_link import connect

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Mapping

    from launch.remote.base import payloads
    from launch.remote.base.encryption import SharedKey
    from launch.remote.base.payloads import Busy, Go, Hello, Ready, RunnerSpec
    from launch.remote.base.records import Checks
    from launch.remote.node.runtimes.container import Container

__all__ = ["Runner", "run_node", "run_rank"]


class Runner(Loop):
    """The runner of one SPEC's ranks; with a ``key``, the SPEC must be encrypted for ``context``."""

    def __init__(
        self,
        channel_in: int,
        channel_out: int,
        key: SharedKey | None = None,
        context: bytes = b"",
        launcher_prefixes: tuple[str, ...] = (),
        mpi_version: str = "",
    ) -> None:
        super().__init__(channel_in, channel_out)
        self._key, self._context = key, context
        self._launcher_prefixes = launcher_prefixes
        """Prefixes of the variables of what started this runner; the setup line does not get them."""
        self._mpi_version = mpi_version
        """Name and title of the mpirun that started this runner; only of a node's first one under mpirun."""
        self._work = -1
        """Descriptor that locks the job's working folder on this node; -1 without one."""
        self._grant: _socket.socket | None = None
        """Connection whose end ends the job's grant of the nodes' identity."""

    def run(self) -> int:
        """Wait for the SPEC, prepare the node, wait for GO and run the ranks to their end.

        Return 0 whatever the ranks' exit statuses: the channel reports these. mpirun would end the other
        ranks by its own rules if one runner exited early or with an error, so all runners exit at once, when
        the supervisor closes the channel.
        """
        payload = self._wait_for(frames.SPEC)
        if payload is None:
            return self._run(None)
        if self._key is not None:
            payload = self._key.decrypt(payload, self._context)
        spec: RunnerSpec = frames.unpack(payload)
        status = self._run(spec)
        self._end_grant()
        if spec["checks"].get("recorder"):
            from launch.remote.node.rank_recorder import remove_pipes  # few jobs have them

            remove_pipes(expand_home(spec["folder"]))
        if self._work >= 0:
            os.close(self._work)
            if not spec["keep"]:  # a restart may need a kept one: the supervisor has it cleared later
                work_dir.clear(expand_home(spec["folder"]))
        if os.path.exists(f"{expand_home(spec['folder'])}/job.json"):
            from launch.remote.base import job_dir  # on the head, after the ranks

            try:  # noqa: SIM105  (contextlib is an import more for each rank)
                job_dir.Folder(spec["job"]).state()  # a killed supervisor's job is LOST, without secrets
            except (OSError, job_dir.Unreadable):
                pass
        return status

    def _run(self, spec: RunnerSpec | None) -> int:
        held: list[int] = []
        if spec is not None:
            self._grace = spec["grace_ms"] / 1000
            self._rate, self._burst = spec["rate"], spec["burst"]
            try:
                held += slots.take_slots(spec)
                if spec["checks"]:
                    self._send(frames.HELD, {})
                ports = self._make_ready(spec, held)
                ready: Ready = {"ports": ports, "network": rank_env.network(spec, self._inherited())}
                self._send(frames.READY, ready)
                go = self._wait_for(frames.GO)
                if go is not None:
                    if spec["with_identity"]:
                        self._begin_grant(spec)
                    self._start(spec, frames.unpack(go))
            except slots.SlotsTaken as taken:
                busy: Busy = {"taken": taken.taken}
                self._send(frames.BUSY, busy)
                return self._wait_for_close()
            except (Unfit, OSError) as error:
                if not self._stopped:  # a stopped job did not end because of this node
                    self._end_leftovers()
                    reasons = error.reasons if isinstance(error, Unfit) else [str(error)]
                    failed: payloads.Unfit = {"reasons": reasons}
                    self._send(frames.FAILED, failed)
                    return self._wait_for_close()
        while any(rank.status is None for rank in self.ranks):
            self._handle_events(TICK_MS)
        done = self._end_leftovers()
        if self._key is None:  # under mpirun other runners' ranks on this node may outlast this one's
            self._end_grant()
        if self._grant is None:  # a job that gets the slots must not get the identity
            for slot in held:
                os.close(slot)  # before DONE: a restart may take the slots at once
        self._send(frames.DONE, done)
        return self._wait_for_close()

    def _begin_grant(self, spec: RunnerSpec) -> None:
        from launch.remote.node import identity_grant  # few jobs use it

        if spec["identity"]:
            self._grant = identity_grant.begin(spec["identity"])
        else:
            identity_grant.wait_for(spec["job"])

    def _end_grant(self) -> None:
        if self._grant is not None:
            from launch.remote.node import identity_grant

            identity_grant.end(self._grant)
            self._grant = None

    def _make_ready(self, spec: RunnerSpec, held: list[int]) -> list[int]:
        """Do all that can fail, so that no rank starts if one node fails; return the reserved ports. Raise
        Unfit."""
        self._check_node(spec)
        folder = prepare_folder(spec)
        held += hold_stored(spec)
        self._work = work_dir.make(folder, spec["snapshot"], self._keep_alive)
        work_dir.make_outputs(folder, spec["outputs"])
        if spec["identity"]:
            from launch.remote.node.identity_grant import verify  # few jobs use it

            verify(spec["identity"])
        if spec["in_place"]:
            from launch.remote.node.snapshot_check import check  # loads OpenSSL, and few jobs need it

            for snapshot in spec["in_place"]:
                check(snapshot, self._keep_alive)
        processes.become_subreaper()
        if spec["environment"]["runtime"] != "bare":
            from launch.remote.node.runtimes.container_kinds import container_of  # bare ranks do not need it

            self.container = container_of(spec)
            self.container.ready(self._run_on_node, self._keep_alive)
            if self._mpi_version:
                self._check_mpi(spec, self.container)
        if spec["checks"]:
            self._check_needs(spec, spec["checks"], folder)
        if not spec["ports"]:
            return []
        from launch.remote.base.ports import take_ports  # few jobs need it

        return take_ports(spec["first_port"], spec["ports"], held)

    def _check_needs(self, spec: RunnerSpec, checks: Checks, folder: str) -> None:
        """Run the setup line. Raise Unfit where it fails, or where the node lacks what the job needs."""
        env = rank_env.node_environment(spec, self._inherited(), self._launcher_prefixes)
        reasons = lacks(checks, lambda command: self._is_found(command, env, spec))
        if reasons:
            raise Unfit(*reasons)
        if checks["setup"]:
            log = open_log(folder, "setup-" + os.uname().nodename)
            done = self._run_for_node(["bash", "-c", checks["setup"]], env, spec, log, None)
            if done.status:
                raise Unfit(f"the setup line ended with exit status {done.status}")
        if checks["script"]:
            seek = ["sh", "-c", 'test -e "$0"', checks["script"]]
            if self._run_for_node(seek, env, spec, NO_LOG, timing.CONTAINER_S).status:
                raise Unfit(f"there is no {checks['script']}; scripts of the code are named from its folder")
        if checks["requires"]:
            self._check_modules(spec, checks, env, folder)

    def _check_modules(self, spec: RunnerSpec, checks: Checks, env: dict[str, str], folder: str) -> None:
        """Raise Unfit where the job's Python lacks a module, or its torch has no code for the node's GPUs."""
        python = "python" if python_folder(spec["python"]) else spec["python"]
        torch = None
        if checks.get("gpu"):
            from launch.remote.node.torch_check import TorchCheck  # only torch on GPUs needs it

            torch = TorchCheck(checks, folder, in_image=self.container is not None)
        argv = modules_argv(expand_home(python), checks["requires"], torch.program if torch else "")
        done = self._run_for_node(argv, env, spec, NO_LOG, timing.MODULES_S)
        reason = missing_modules(spec["python"], done.status or 0, done.output)
        if torch is not None and not reason:
            reason = torch.unfit(done.output)
            spec["defaults"].update(torch.variables(done.output))
        if reason:
            raise Unfit(reason)

    def _check_node(self, spec: RunnerSpec) -> None:
        """Raise Unfit where Azure takes the node, or its devices are not as they have to be."""
        coming = eviction.notice() if eviction.stamp() else None
        if coming and coming["type"]:
            raise Unfit(eviction.words(coming["type"], coming["at"], time.time()))
        if spec["health"]["mode"] != "off":
            from launch.remote.node import health_gate  # where health is off, nothing is imported for it

            health_gate.check(spec, self._run_look, self._send)
        if spec["infiniband"]:
            spec["defaults"].update(infiniband.rank_defaults({**os.environ, **spec["user_env"]}))

    def _run_look(self, argv: list[str], limit: float) -> tuple[int | None, bytes]:
        """Run a look as :meth:`_run_bounded` does. Raise Unfit once the runner must end: a look that is cut
        off says nothing of the node."""
        found = self._run_bounded(argv, limit)
        if self._stopped:
            raise Unfit("stopped")
        return found

    def _keep_alive(self, wait_ms: int) -> None:
        """Run the loop, signs of life included, during long work. Raise Unfit once the runner must end."""
        self._handle_events(wait_ms)
        if self._stopped:
            raise Unfit("stopped")

    def _check_mpi(self, spec: RunnerSpec, container: Container) -> None:
        """Raise Unfit where ranks in the container could not join the mpirun that started this runner."""
        from launch.remote.node.runtimes.image_mpi import check_mpi

        env = rank_env.node_environment(spec, self._inherited(), self._launcher_prefixes)
        check_mpi(
            container,
            self._mpi_version,
            lambda argv: self._run_for_node(argv, env, spec, NO_LOG, timing.CONTAINER_S).output,
        )

    def _inherited(self) -> Mapping[str, str]:
        return os.environ if self.container is None else self.container.inherited(os.environ)

    def _spawn(self, argv: list[str], env: dict[str, str], cwd: str, rank: int) -> tuple[int, int, int]:
        if self.container is None:
            return processes.spawn(argv, env, cwd)
        return self.container.spawn(argv, env, cwd, rank)

    def _run_on_node(self, argv: list[str], limit: float) -> tuple[int, bytes]:
        """Run a container runtime's command on the node itself; return its exit status and output."""
        done = self._wait_for_process(processes.spawn(argv, dict(os.environ), "/"), NO_LOG, limit)
        return done.status or 0, done.output

    def _is_found(self, command: str, env: dict[str, str], spec: RunnerSpec) -> bool:
        """Return whether a rank can start the command."""
        if self.container is None:
            return bool(which(command, env.get("PATH", os.defpath)))
        seek = ["sh", "-c", 'command -v "$0" >/dev/null', command]
        return not self._run_for_node(seek, env, spec, NO_LOG, timing.CONTAINER_S).status

    def _run_for_node(
        self, argv: list[str], env: dict[str, str], spec: RunnerSpec, log: int, limit: float | None
    ) -> Process:
        """Run a command for the whole node, for at most ``limit`` seconds; with a ``log``, forward its output
        to the stream. Raise Unfit once the runner must end."""
        return self._wait_for_process(self._spawn(argv, env, expand_home(spec["cwd"]), NODE), log, limit)

    def _wait_for_process(self, spawned: tuple[int, int, int], log: int, limit: float | None) -> Process:
        process = self._add_process(spawned, log)
        until = None if limit is None else time.monotonic() + limit
        while process.status is None:
            self._handle_events(TICK_MS)
            if until is not None and time.monotonic() > until:
                processes.kill(process.pid, SIGKILL)
        if self._stopped:
            raise Unfit("stopped")
        return process

    def _start(self, spec: RunnerSpec, go: Go) -> None:
        folder = expand_home(spec["folder"])
        self._exits = os.open(
            folder + "/exits.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        pids = []
        for given in spec["ranks"]:
            number = given["rank"]
            given["env"].update(go.get(str(number), {}))
            env = rank_env.environment(spec, given["env"], self._inherited())
            argv = rank_env.expand(spec["argv"], spec["expand"], env)
            if argv[0] == spec["python"]:
                argv[0] = expand_home(argv[0])
            log = open_log(folder, f"rank-{number}")
            pid, out, err = self._spawn(argv, env, expand_home(spec["cwd"]), number)
            self.ranks.append(Process(number, pid, {out: 1, err: 2}, log))
            pids.append(pid)
        self._report_started(spec, pids)


def run_node() -> int:
    """Run all ranks of a node, with the channel on stdin and stdout."""
    processes.die_with_parent(SIGTERM)
    channel_in, channel_out = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    status = fork_under_guardian(channel_in, channel_out)
    if status is not None:
        return status
    runner = Runner(channel_in, channel_out)
    runner.hello(_hello(-1, -1))
    return runner.run()


def _hello(rank: int, local_rank: int) -> Hello:
    node, pid = os.uname().nodename, os.getpid()
    return {"rank": rank, "local_rank": local_rank, "node": node, "pid": pid, "token": "", "proof": ""}


def run_rank() -> int:
    """Run one rank under mpirun.

    The MPI passes the rank's numbers in environment variables; ``RANKLIFT_MPI`` holds their names and how the
    MPI ends its ranks, see :func:`launch.remote.mpi.registry.runner_facts`.
    """
    processes.die_with_parent(SIGTERM)
    launcher, child = os.getppid(), os.getpid()
    launched = processes.start_time(launcher)
    variables, prefixes = os.environ.pop("RANKLIFT_MPI").split(" ")
    for _ in range(
        2
    ):  # the first is what an MPI ends by SIGKILL, at once or soon, and the second must outlive
        status = fork_under_guardian()
        if status is not None:
            return status
    from launch.remote.base.encryption import SharedKey

    token = os.environ.pop("RANKLIFT_TOKEN", "")
    host, _, port = os.environ.pop("RANKLIFT_SUPERVISOR", "").rpartition(":")
    for name in (processes.RUNNER_OF, "RANKLIFT_LAST"):  # Open MPI gives the head's ranks all that mpirun has
        os.environ.pop(name, None)
    open_files = os.environ.pop("RANKLIFT_OPEN_FILES", "")
    if open_files:
        import resource  # only on the head, where mpirun may have a lower limit than ranks

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(open_files), hard))
    libraries = os.environ.pop("RANKLIFT_LIBRARY_PATH", "")
    if libraries:
        more = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = f"{libraries}:{more}" if more else libraries
    version = os.environ.pop("RANKLIFT_MPI_VERSION", "")
    rank, local_rank = rank_env.mpi_numbers(variables.split(","))
    hello = _hello(rank, local_rank)
    hello["token"] = token
    try:
        key = SharedKey.of_cluster(token)
        hello["proof"] = key.proof(frames.hello_words(hello))
    except OSError:
        key = None  # the supervisor sees that the proof is missing, and sends no SPEC
    try:
        channel = connect(host, int(port), frames.frame(frames.HELLO, frames.pack(hello)))
    except OSError as error:
        sys.stderr.write(f"{os.uname().nodename} cannot reach the supervisor at {host}:{port}: {error}\n")
        return 1
    if channel is None:
        return 0
    runner = Runner(
        channel.fileno(),
        os.dup(channel.fileno()),
        key,
        b"SPEC of rank %d" % rank,
        tuple(prefixes.split(",")),
        "" if local_rank > 0 else version,
    )
    status = runner.run()
    if runner.is_supervisor_lost:
        processes.end_idle_launcher(launcher, launched, child)
    return status
