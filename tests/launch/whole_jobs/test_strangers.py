"""Who is not a runner of an MPI job cannot affect it, whatever it sends to the supervisor; and what the user
gave the job crosses the network encrypted."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest

from launch.job.spec import JobSpec, Kind
from launch.remote.base import frames
from launch.remote.base.encryption import SharedKey
from launch.remote.base.payloads import Hello
from launch.remote.node.supervisor_link import connect
from tests.launch.remote.head.runners.test_pending_connections import is_closed
from tests.launch.standin import REMOTE, Nodes, Started, lines, shell, start, states, until
from tests.launch.whole_jobs.test_restarting import mpirun_of

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_runs_on")]

UNTIL_TOLD = "echo up; while [ ! -e $STANDIN/go ]; do sleep 0.05; done; echo end"
KEY = b"the cluster's key\n"


def given(started: Started, name: str) -> str:
    """A variable that the job's mpirun has."""
    environ = Path(f"/proc/{mpirun_of(started)}/environ").read_bytes().split(b"\0")
    (value,) = [word.partition(b"=")[2] for word in environ if word.startswith(name.encode() + b"=")]
    return value.decode()


class Job:
    """An MPI job of three ranks that run until they are let go."""

    def __init__(self, nodes: Nodes, **options: Any) -> None:
        self._nodes = nodes
        self.started = start(nodes, shell(UNTIL_TOLD, "mpi", **options))
        until(lambda: len(lines(self.started.events)) == 3)
        host, _, port = given(self.started, "RANKLIFT_SUPERVISOR").rpartition(":")
        self.address = (host, int(port))
        self.token = given(self.started, "RANKLIFT_TOKEN")

    def connect(self, data: bytes = b"") -> socket.socket:
        client = socket.create_connection(self.address, 5)
        client.sendall(data)
        return client

    def hello(self, rank: int, token: str | None = None, **other: Any) -> bytes:
        own = {"rank": rank, "local_rank": 0, "node": f"node{rank:06}", "pid": os.getpid()}
        here = cast("Hello", {**own, **other})
        proof = SharedKey(KEY, self.token).proof(frames.hello_words(here))
        return frame(frames.HELLO, dict(here, token=self.token if token is None else token, proof=proof))

    def let_go(self) -> None:
        (self._nodes.folder / "go").touch()

    def goes_on(self) -> None:
        """It ends as it would have without any stranger."""
        time.sleep(0.3)
        assert states(self.started.events) == ["STARTING", "RUNNING"]
        self.let_go()
        state = self.started.end()
        assert (state.state, state.exit_status, state.reason) == ("SUCCEEDED", 0, "")
        assert sorted(lines(self.started.events))[::2] == [(rank, "end") for rank in range(3)]


def frame(kind: bytes, fields: object) -> bytes:
    return frames.frame(kind, frames.pack(fields))


def ends(*, status: int, ranks: int = 3) -> bytes:
    how = {"status": status, "signal": 0, "stopped": 0, "time_us": 1}
    return b"".join(frame(frames.EXIT, dict(how, rank=rank)) for rank in range(ranks))


WITHOUT_HELLO = {
    "EXIT with 1": ends(status=1, ranks=1),
    "EXIT with 0 of all ranks": ends(status=0),
    "BUSY": frame(frames.BUSY, {"taken": [[0, "x"]]}),
    "FAILED": frame(frames.FAILED, {"reasons": ["x"]}),
    "DONE": frame(frames.DONE, {"left": [], "ended": []}),
    "READY": frame(frames.READY, {"ports": [], "network": ""}),
    "STARTED": frame(frames.STARTED, {"pids": [1], "time_us": 1}),
    "EVICTION": frame(frames.EVICTION, {"type": "Preempt", "at": 1, "left_ms": 0, "at_once": 1}),
    "output": frames.frame(frames.OUT, frames.OUTPUT.pack(0, 1) + b"forged\n"),
    "seven bytes": frames.frame(frames.EXIT, b"de"),
    "a nested payload": frames.frame(frames.HELD, b"l" * 100_000),
    "a huge length": frames.HEADER.pack(frames.EXIT, 0xFFFFFFFF),
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
}


@pytest.mark.parametrize("what", WITHOUT_HELLO)
def test_no_frame_counts_without_a_hello(nodes: Nodes, what: str) -> None:
    job = Job(nodes)
    with job.connect(WITHOUT_HELLO[what]) as client:
        assert is_closed(client)
        job.goes_on()
    assert "forged" not in str(job.started.events)


@pytest.mark.parametrize("token", ["f" * 32, "", "0" * 31, "0" * 33, "é"])
def test_no_frame_counts_with_another_token(nodes: Nodes, token: str) -> None:
    job = Job(nodes)
    with job.connect(job.hello(0, token) + ends(status=1)) as client:
        assert is_closed(client)
        job.goes_on()


def test_a_rank_has_one_runner(nodes: Nodes) -> None:
    job = Job(nodes)
    with job.connect(job.hello(1) + ends(status=1)) as second, job.connect(job.hello(7)) as beyond:
        assert is_closed(second)
        assert is_closed(beyond)
        job.goes_on()


def test_idle_connections_do_not_keep_a_job_from_its_end(nodes: Nodes) -> None:
    job = Job(nodes)
    clients = [job.connect() for _ in range(50)] + [job.connect(job.hello(0)[:30])]
    begun = time.monotonic()
    job.goes_on()
    assert time.monotonic() - begun < 5
    for client in clients:
        assert is_closed(client)
        client.close()


def test_a_flood_from_the_start_keeps_no_runner_out(nodes: Nodes) -> None:
    for node in nodes.nodes[1:]:
        waits_for_a_flood(nodes, node.name)
    started = start(nodes, shell("echo up", "mpi"))
    until((nodes.folder / "address").exists)
    host, _, port = (nodes.folder / "address").read_text().rpartition(":")
    clients = [socket.create_connection((host, int(port)), 10) for _ in range(2000)]
    (nodes.folder / "flooded").touch()
    state = started.end()
    for client in clients:
        client.close()
    assert (state.state, state.reason) == ("SUCCEEDED", "")


def waits_for_a_flood(nodes: Nodes, node: str) -> None:
    in_place_of_the_runner(
        nodes,
        node,
        """
        import pathlib, time
        folder = pathlib.Path(os.environ["STANDIN"])
        (folder / f"address.{os.getpid()}").write_text(os.environ["RANKLIFT_SUPERVISOR"])
        (folder / f"address.{os.getpid()}").rename(folder / "address")
        while not (folder / "flooded").exists():
            time.sleep(0.02)
        """,
    )


def in_place_of_the_runner(nodes: Nodes, node: str, before: str) -> None:
    """From now on the node's runners under mpirun do something before they begin."""
    import textwrap

    entry = nodes.folder / node / ".ranklift/remote/hash"
    entry.unlink()
    entry.mkdir()
    lines = ["import os, sys", 'if sys.argv[1] == "rank":', textwrap.indent(textwrap.dedent(before), "    ")]
    real = f"{REMOTE}/__main__.py"
    lines.append(f"os.execv(sys.executable, [sys.executable, '-I', '-S', {real!r}, *sys.argv[1:]])")
    (entry / "__main__.py").write_text("\n".join(lines))


class TestARunnerThatIsNotWhatItWas:
    """One that has shown who it is may still be broken, or in other hands: its rank is lost, nothing more."""

    def play(self, nodes: Nodes, then: bytes) -> str:
        """The reason of a job whose second node's runner sends something instead of what it should."""
        in_place_of_the_runner(
            nodes,
            "node000001",
            f"""
            import socket, time
            sys.path.insert(0, {str(REMOTE.parent.parent)!r})
            from launch.remote.base import frames
            from launch.remote.base.encryption import SharedKey
            host, _, port = os.environ["RANKLIFT_SUPERVISOR"].rpartition(":")
            token = os.environ["RANKLIFT_TOKEN"]
            hello = {{"rank": 1, "local_rank": 0, "node": os.uname().nodename, "pid": os.getpid()}}
            proof = SharedKey.of_cluster(token).proof(frames.hello_words(hello))
            channel = socket.create_connection((host, int(port)))
            channel.sendall(frames.frame(b"H", frames.pack(dict(hello, token=token, proof=proof))))
            channel.recv(65536)
            channel.sendall(bytes.fromhex({then.hex()!r}))
            while channel.recv(65536):
                pass
            sys.exit(0)
            """,
        )
        started = start(nodes, shell("echo up", "mpi", grace_s=1))
        state = started.end()
        assert state.state == "FAILED"
        assert [text for _, text in lines(started.events)] == []
        return state.reason

    ready = frame(frames.READY, {"ports": [], "network": ""})

    @pytest.mark.parametrize(
        ("sent", "reason"),
        [
            pytest.param(frame(frames.HELLO, {}), "without its fields", id="a HELLO without fields"),
            pytest.param(ends(status=0, ranks=2), "at the wrong time", id="an end before the start"),
            pytest.param(
                frame(frames.STARTED, {"pids": [1], "time_us": 1}),
                "at the wrong time",
                id="a start before GO",
            ),
            pytest.param(ready + ready, "at the wrong time", id="ready twice"),
            pytest.param(
                frame(frames.READY, {"ports": [2222], "network": ""}), "1 ports", id="a port too many"
            ),
            pytest.param(frames.frame(frames.HELD, b"l" * 100_000), "lists within", id="nested"),
            pytest.param(frames.frame(frames.EXIT, b"de"), "without its fields", id="seven bytes"),
            pytest.param(frames.HEADER.pack(b"O", 1 << 21), "a frame of 2097152 bytes", id="a huge length"),
            pytest.param(
                frames.frame(frames.OUT, frames.OUTPUT.pack(0, 1) + b"forged\n"),
                "for rank 0, which is another runner's",
                id="another rank's output",
            ),
        ],
    )
    def test_it_loses_its_rank_alone(self, nodes: Nodes, sent: bytes, reason: str) -> None:
        result = self.play(nodes, sent)
        assert result.startswith("no rank was started: node000001: ")
        assert reason in result


@pytest.mark.parametrize("kind", ["mpi", "pytorch"])
def test_a_rank_has_nothing_of_its_runners_channel(nodes: Nodes, kind: Kind) -> None:
    nodes.code("open.py", OPEN)
    _, events = nodes.run(JobSpec("t", kind, ("open.py",), snapshot="code"))
    assert [text for _, text in lines(events)] == ["[0, 1, 2]"] * 3


OPEN = """
import os
found = []
for fd in range(1000):
    try:
        os.fstat(fd)
    except OSError:
        continue
    found.append(fd)
print(found)
"""


class TestTheClustersKey:
    """What is sent to a rank, only a node of this cluster can read."""

    def test_nothing_of_the_users_is_in_what_crosses_the_network(self, nodes: Nodes) -> None:
        in_place_of_the_runner(nodes, "node000001", CAPTURE)
        script = 'echo "$SECRET" "$1"; echo'
        secret, word = "s3cret-value-in-a-variable", "s3cret-word-in-an-argument"
        spec = shell(script, "mpi", env={"SECRET": secret})
        command = (*spec.command, "sh", word)
        from dataclasses import replace

        state, events = nodes.run(replace(spec, command=command))
        assert state.state == "SUCCEEDED"
        assert (1, f"{secret} {word}") in lines(events)
        to_the_runner = (nodes.folder / "to-the-runner").read_bytes()
        assert len(to_the_runner) > 1000
        for name in (secret, word, "user_env", "hostfile"):
            assert name.encode() not in to_the_runner
        assert KEY.strip() not in (nodes.folder / "from-the-runner").read_bytes()

    def test_a_node_without_it_is_named_and_sent_nothing(self, nodes: Nodes) -> None:
        (nodes.folder / "node000001/.ssh/id_ed25519").unlink()
        state, _ = nodes.run(shell("true", "mpi"))
        assert state.state == "FAILED"
        assert state.reason == (
            "no rank was started: node000001: has no cluster key ~/.ssh/id_ed25519, with which MPI jobs "
            "encrypt their traffic: copy the head's there, with mode 0600, or `fab replace` the node"
        )

    def test_a_node_with_another_is_named_and_sent_nothing(self, nodes: Nodes) -> None:
        (nodes.folder / "node000002/.ssh/id_ed25519").write_text("another cluster's")
        state, _ = nodes.run(shell("true", "mpi"))
        assert state.state == "FAILED"
        assert state.reason == (
            "no rank was started: node000002: its cluster key ~/.ssh/id_ed25519 is not the head's, so "
            "nothing was sent to it: copy the head's there, with mode 0600, or `fab replace` the node"
        )

    def test_a_head_without_it_starts_nothing(self, nodes: Nodes) -> None:
        (nodes.folder / "node000000/.ssh/id_ed25519").unlink()
        state, _ = nodes.run(shell("true", "mpi"))
        assert state.state == "FAILED"
        assert state.reason == (
            "node000000, the head: the cluster's key ~/.ssh/id_ed25519 cannot be read: No such file or "
            "directory; MPI jobs encrypt their traffic with it: copy it there from another node, with mode "
            "0600"
        )

    def test_other_jobs_need_none(self, nodes: Nodes) -> None:
        for node in nodes.nodes:
            (nodes.folder / node.name / ".ssh/id_ed25519").unlink()
        state, _ = nodes.run(shell("true"))
        assert state.state == "SUCCEEDED"


CAPTURE = """
import select, socket
host, _, port = os.environ["RANKLIFT_SUPERVISOR"].rpartition(":")
listener = socket.create_server(("127.0.0.1", 0))
os.environ["RANKLIFT_SUPERVISOR"] = "127.0.0.1:%d" % listener.getsockname()[1]
if os.fork():
    up, down = socket.create_connection((host, int(port))), listener.accept()[0]
    there = {up: (down, "to-the-runner"), down: (up, "from-the-runner")}
    while True:
        for one in select.select(list(there), [], [])[0]:
            other, name = there[one]
            data = one.recv(65536)
            with open(os.environ["STANDIN"] + "/" + name, "ab") as file:
                file.write(data)
            other.sendall(data)
            if not data:
                sys.exit(0)
"""


def test_the_token_alone_blames_no_node(nodes: Nodes) -> None:
    in_place_of_the_runner(
        nodes,
        "node000001",
        """
        import pathlib, time
        folder = pathlib.Path(os.environ["STANDIN"])
        (folder / "new").write_text(os.environ["RANKLIFT_SUPERVISOR"] + " " + os.environ["RANKLIFT_TOKEN"])
        (folder / "new").rename(folder / "given")
        while not (folder / "go").exists():
            time.sleep(0.02)
        """,
    )
    started = start(nodes, shell("echo up", "mpi"))
    until((nodes.folder / "given").exists)
    address, token = (nodes.folder / "given").read_text().split()
    host, _, port = address.rpartition(":")
    for proof in ("", "0" * 64):
        hello = {"rank": 1, "local_rank": 0, "node": "node000000", "pid": 1, "token": token, "proof": proof}
        elsewhere = ("127.0.0.9", 0)
        with socket.create_connection((host, int(port)), 5, source_address=elsewhere) as stranger:
            stranger.sendall(frame(frames.HELLO, hello))
            assert is_closed(stranger)
    (nodes.folder / "go").touch()
    state = started.end()
    assert (state.state, state.reason) == ("SUCCEEDED", "")


def test_a_runner_that_was_crowded_out_connects_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        shown = []

        def supervise() -> None:
            listener.accept()[0].close()
            connection, _ = listener.accept()
            with connection:
                shown.append(connection.recv(5))
                connection.sendall(b"S")

        supervisor = threading.Thread(target=supervise)
        supervisor.start()
        channel = connect("127.0.0.1", listener.getsockname()[1], b"hello")
        assert channel is not None
        assert channel.recv(1) == b"S", "what came is still to be read"
        channel.close()
        supervisor.join(5)
        assert shown == [b"hello"]
