"""A node over ssh: the pin holds, bytes and words arrive as they left, every failure has its name."""

from __future__ import annotations

import io
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import fabric
import paramiko
import pytest

from infra.inventory import KNOWN_HOSTS_FILE, Inventory
from launch.errors import GiveUpError, HostKeyChanged, InputError, NodeUnreachable, StepTimeout
from launch.host import Completed
from launch.remote.base import timing
from launch.remote.login import own_output
from playbooks.ssh import connection, exchange
from playbooks.ssh.connection import Cluster, SshHost
from playbooks.ssh.pins import read_pins
from tests.playbooks.server import SshServer, free_port, make_key, save_stack


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with SshServer(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture
def stack(server: SshServer, tmp_path: Path) -> Inventory:
    return save_stack(tmp_path, {0: server.port}, server.host_key, server.user_key)


@pytest.fixture
def host(stack: Inventory, tmp_path: Path) -> Iterator[SshHost]:
    with Cluster(stack, tmp_path) as cluster:
        yield cluster.host(stack.nodes[0])


def connect(inventory: Inventory, folder: Path) -> None:
    with Cluster(inventory, folder) as cluster:
        cluster.host(inventory.nodes[0]).run(["true"], timeout=30)


def test_words_with_anything_in_them_arrive_as_they_are(host: SshHost) -> None:
    words = ["a b", "it's", '"', "$HOME", "`id`", "line\nbreak", "\\", "*", "", "é漢", "a;b&c|d>e"]
    done = host.run(["printf", "%s\\0", *words], timeout=30)
    assert done.stdout.decode().split("\0")[:-1] == words


def test_output_is_bytes_and_stderr_and_status_are_kept(host: SshHost) -> None:
    done = host.run(["sh", "-c", "printf '\\377\\000\\r\\n'; echo oops >&2; exit 7"], timeout=30)
    assert (done.exit_status, done.stdout, done.stderr) == (7, b"\xff\x00\r\n", b"oops\n")


@pytest.mark.parametrize(("name", "status"), [("KILL", 137), ("TERM", 143), ("RTMIN", 128)])
def test_a_command_that_a_signal_ended_says_so(host: SshHost, name: str, status: int) -> None:
    """Of signals that the protocol has no name for, only that it was one."""
    done = host.run(f"kill -{name} $$", timeout=30)
    assert (done.exit_status, done.stderr) == (status, b"")


def test_stdin_of_many_megabytes_comes_back_whole(host: SshHost) -> None:
    data = os.urandom(5_000_000)
    assert host.run(["cat"], stdin=data, timeout=60).stdout == data
    assert host.run(["cat"], stdin=io.BytesIO(data), timeout=60).stdout == data


def test_much_stderr_does_not_block_stdout(host: SshHost) -> None:
    done = host.run(["sh", "-c", "head -c 4000000 /dev/zero >&2; echo end"], timeout=60)
    assert done.stdout == b"end\n"
    assert (len(done.stderr), done.stderr_left_out) == (exchange.KEPT_BYTES, 4_000_000 - exchange.KEPT_BYTES)


def test_what_is_only_shown_is_kept_from_its_end(host: SshHost) -> None:
    done = host.run_tail("head -c 4000000 /dev/zero; echo end", timeout=60)
    assert (done.exit_status, len(done.stdout), done.stdout[-4:]) == (0, exchange.KEPT_BYTES, b"end\n")
    assert done.stdout_left_out == 4_000_004 - exchange.KEPT_BYTES


def test_an_answer_without_end_is_no_answer(host: SshHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """An end of it would be read as another one."""
    monkeypatch.setattr(connection, "ANSWER_BYTES", 3 << 20)
    assert len(host.run(["head", "-c", str(3 << 20), "/dev/zero"], timeout=60).stdout) == 3 << 20
    with pytest.raises(GiveUpError, match="node000000: yes writes more than the 3 MiB that an answer may"):
        host.run(["yes"], timeout=60)


def test_a_command_that_reads_no_stdin_still_ends(host: SshHost) -> None:
    assert host.run(["sh", "-c", "exit 4"], stdin=bytes(8_000_000), timeout=60).exit_status == 4


def test_output_is_handed_on_as_it_comes(host: SshHost) -> None:
    came: list[tuple[float, bytes]] = []
    done = host.stream(
        ["sh", "-c", "echo one; sleep 0.6; echo two"],
        lambda data: came.append((time.monotonic(), data)),
        timeout=30,
    )
    assert done.stdout == b""
    assert b"".join(data for _, data in came) == b"one\ntwo\n"
    assert came[-1][0] - came[0][0] > 0.4


def test_what_was_started_goes_on_until_the_connection_is_closed(host: SshHost, tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    assert host.start(["sh", "-c", f"echo up; cat; touch {ended}"], timeout=30) is None
    host.run(["true"], timeout=30)
    assert not ended.exists()
    host.close()
    deadline = time.monotonic() + 20
    while not ended.exists():
        assert time.monotonic() < deadline, "it goes on"
        time.sleep(0.02)


def test_what_ends_instead_of_starting_says_how(host: SshHost) -> None:
    done = host.start(["sh", "-c", "echo oops >&2; exit 7"], timeout=30)
    assert done == Completed(7, b"", b"oops\n")
    with pytest.raises(StepTimeout, match=r"node000000: sleep did not end within 0\.5 s"):
        host.start(["sleep", "20"], timeout=0.5)
    with pytest.raises(StepTimeout, match=r"sh did not end within 0\.5 s"):
        host.start(["sh", "-c", "exec >&-; sleep 20"], timeout=0.5)


def test_of_what_ends_instead_of_starting_the_end_is_kept(host: SshHost) -> None:
    done = host.start(["sh", "-c", "head -c 1500000 /dev/zero >&2; echo last >&2"], timeout=30)
    assert done is not None
    assert (len(done.stderr), done.stderr[-5:]) == (1 << 20, b"last\n")
    assert done.stderr_left_out == 1_500_005 - (1 << 20)


def test_what_the_receiver_raises_goes_through(host: SshHost) -> None:
    def full(_: bytes) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        host.stream(["echo", "hi"], full, timeout=30)
    assert host.run(["echo", "still there"], timeout=30).stdout == b"still there\n"


def test_ctrl_c_ends_no_call_of_paramiko_half_way(host: SshHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock would stay taken for which the end of the connection waits."""
    receive, received = paramiko.Channel.recv, []

    def recv(channel: paramiko.Channel, size: int) -> bytes:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        received.append(receive(channel, size))
        return received[-1]

    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(paramiko.Channel, "recv", recv)
    with pytest.raises(KeyboardInterrupt):
        host.run(["echo", "here"], timeout=30)
    assert own_output(b"".join(received)) == b"here\n"
    assert signal.getsignal(signal.SIGINT) is handler


def test_ctrl_c_does_not_wait_for_a_receiver(host: SshHost) -> None:
    def wait(_: bytes) -> None:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        time.sleep(60)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        host.stream(["echo", "here"], wait, timeout=90)
    assert time.monotonic() - began < 30


def test_ctrl_c_ends_a_command_that_says_nothing(host: SshHost) -> None:
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        host.run(["sleep", "60"], timeout=90)
    assert time.monotonic() - began < 30


def test_one_connection_serves_many_commands(host: SshHost) -> None:
    host.run(["true"], timeout=30)
    first = host._connection
    host.run(["true"], timeout=30)
    assert host._connection is first


def test_a_command_over_its_limit_is_named_with_node_and_limit(host: SshHost) -> None:
    started = time.monotonic()
    with pytest.raises(StepTimeout, match=r"node000000: sleep did not end within 0\.5 s"):
        host.run(["sleep", "20"], timeout=0.5)
    assert time.monotonic() - started < 5


def test_a_changed_host_key_is_refused_before_anything_is_sent(server: SshServer, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    inventory = save_stack(tmp_path / "stack", {0: server.port}, other, server.user_key)
    before = server.log.count("publickey")
    expected = r"node000000: 127\.0\.0\.1:\d+ shows host key SHA256:.*not the pinned"
    with pytest.raises(HostKeyChanged, match=expected):
        connect(inventory, tmp_path / "stack")
    assert server.log.count("publickey") == before, "no key was offered to it"


def test_a_node_without_a_pin_is_not_even_connected(
    stack: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / KNOWN_HOSTS_FILE).write_text("")
    monkeypatch.setattr(fabric.Connection, "open", lambda self: pytest.fail("connected"))
    with pytest.raises(HostKeyChanged, match="no host key is pinned"):
        connect(stack, tmp_path)


def test_an_unknown_key_is_never_added(host: SshHost) -> None:
    host.run(["true"], timeout=30)
    assert host._connection is not None
    client = host._connection.client
    assert isinstance(client._policy, paramiko.RejectPolicy)
    assert len(client.get_host_keys()) == 1


def test_another_kind_of_host_key_is_refused(tmp_path: Path) -> None:
    with SshServer(tmp_path / "sshd", kind="ecdsa") as running:
        pinned = make_key(tmp_path / "pinned")
        inventory = save_stack(tmp_path / "stack", {0: running.port}, pinned, running.user_key)
        with pytest.raises(HostKeyChanged, match="no ed25519 host key"):
            connect(inventory, tmp_path / "stack")


def test_the_users_own_keys_and_settings_are_not_looked_at(
    server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "config").write_text("Host *\n  Port 1\n  User nobody\n  ProxyCommand false\n")
    (home / ".ssh" / "id_ed25519").write_text(server.user_key.read_text())
    (home / ".ssh" / "id_ed25519").chmod(0o600)
    (home / ".fabric.yaml").write_text("user: nobody\n")
    monkeypatch.setenv("HOME", str(home))
    good = save_stack(tmp_path / "good", {0: server.port}, server.host_key, server.user_key)
    connect(good, tmp_path / "good")
    stranger = make_key(tmp_path / "stranger")
    wrong = save_stack(tmp_path / "wrong", {0: server.port}, server.host_key, stranger)
    with pytest.raises(NodeUnreachable, match="refuses this stack's key"):
        connect(wrong, tmp_path / "wrong")


def test_nobody_listening_is_unreachable(server: SshServer, tmp_path: Path) -> None:
    port = free_port()
    inventory = save_stack(tmp_path, {0: port}, server.host_key, server.user_key)
    with pytest.raises(NodeUnreachable, match=rf"node000000: 127\.0\.0\.1:{port}: .*refused"):
        connect(inventory, tmp_path)


def test_a_silent_listener_is_unreachable_in_bounded_time(
    server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "OPERATOR_CONNECT_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        inventory = save_stack(tmp_path, {0: silent.getsockname()[1]}, server.host_key, server.user_key)
        started = time.monotonic()
        with pytest.raises(NodeUnreachable):
            connect(inventory, tmp_path)
        assert time.monotonic() - started < 10


def test_a_load_balancer_without_a_node_behind_it_is_unreachable(server: SshServer, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as balancer:

        def drop() -> None:
            balancer.accept()[0].close()

        dropping = threading.Thread(target=drop)
        dropping.start()
        port = balancer.getsockname()[1]
        inventory = save_stack(tmp_path, {0: port}, server.host_key, server.user_key)
        with pytest.raises(NodeUnreachable, match=r"closed before any sshd answers$"):
            connect(inventory, tmp_path)
        dropping.join()


def test_a_connection_that_breaks_is_unreachable_and_the_next_call_connects_anew(tmp_path: Path) -> None:
    with SshServer(tmp_path / "sshd") as running:
        inventory = save_stack(tmp_path, {0: running.port}, running.host_key, running.user_key)
        with Cluster(inventory, tmp_path) as cluster:
            host = cluster.host(inventory.nodes[0])
            host.run(["true"], timeout=30)
            cut = threading.Timer(0.5, running.die)
            cut.start()
            with pytest.raises(NodeUnreachable, match="broke while sleep ran"):
                host.run(["sleep", "20"], timeout=30)
            cut.join()
            with pytest.raises(NodeUnreachable, match="refused"):
                host.run(["true"], timeout=30)


def test_a_quiet_command_is_asked_after_and_goes_on(host: SshHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "OPERATOR_SILENT_S", 0.2)
    assert host.run(["sh", "-c", "sleep 1; echo done"], timeout=30).stdout == b"done\n"


def test_a_node_that_answers_no_more_is_unreachable(host: SshHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "OPERATOR_SILENT_S", 0.2)
    monkeypatch.setattr(paramiko.Transport, "global_request", lambda *_, **__: time.sleep(3))
    with pytest.raises(NodeUnreachable, match="silent"):
        host.run(["sleep", "5"], timeout=30)


def test_damaged_keys_say_what_to_do(stack: Inventory, tmp_path: Path) -> None:
    (tmp_path / KNOWN_HOSTS_FILE).write_text("node000000 ssh-ed25519 rubbish\n")
    with pytest.raises(InputError, match=r"known_hosts, line 1.*fab status"):
        read_pins(tmp_path / KNOWN_HOSTS_FILE)
    (tmp_path / KNOWN_HOSTS_FILE).unlink()
    with pytest.raises(InputError, match="its keys cannot be read"):
        Cluster(stack, tmp_path)


def test_a_nul_byte_is_refused_before_connecting(host: SshHost) -> None:
    with pytest.raises(InputError, match="NUL"):
        host.run(["echo", "a\0b"])
    assert host._connection is None
