"""The transport to nodes: it waits for nothing that TCP delays, and keeps no more than was asked for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest
from paramiko.common import OPEN_SUCCEEDED, cMSG_CHANNEL_DATA, cMSG_CHANNEL_EXTENDED_DATA

from launch.errors import NodeUnreachable
from playbooks.ssh.connection import Cluster, SshHost
from playbooks.ssh.transport import Prompt
from tests.playbooks.server import make_key, save_stack
from tests.playbooks.ssh.test_connection import host, server, stack

__all__ = ["host", "server", "stack"]

FLOOD = 256 << 20


class Flooding(paramiko.ServerInterface):
    """An sshd that a job has put in the place of the node's: it sends without regard to the window."""

    def __init__(self, kind: bytes) -> None:
        self.kind = kind
        self.sent = 0
        self.may_flood = threading.Event()
        self.ended = threading.Event()

    def check_auth_publickey(self, *_: object) -> int:
        return 0  # paramiko.common's AUTH_SUCCESSFUL

    def check_channel_request(self, *_: object) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, _: bytes) -> bool:
        threading.Thread(target=self._flood, args=(channel,), daemon=True).start()
        return True

    def _flood(self, channel: Any) -> None:
        transport, data = channel.get_transport(), bytes(30_000)
        try:
            channel.sendall(b"\x02ranklift\x03\nrunning\n")
            assert self.may_flood.wait(60)
            while self.sent < FLOOD and transport.is_active():
                message = paramiko.Message()
                message.add_byte(self.kind)
                message.add_int(channel.remote_chanid)
                if self.kind == cMSG_CHANNEL_EXTENDED_DATA:
                    message.add_int(1)
                message.add_string(data)
                transport._send_user_message(message)
                self.sent += len(data)
        except (OSError, EOFError, paramiko.SSHException):
            pass  # what is expected: the connection ends
        finally:
            self.ended.set()


@pytest.fixture(params=[cMSG_CHANNEL_DATA, cMSG_CHANNEL_EXTENDED_DATA], ids=["stdout", "stderr"])
def flooding(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Flooding, SshHost]]:
    host_key, user_key = make_key(tmp_path / "host"), make_key(tmp_path / "user")
    server = Flooding(request.param)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            transport = paramiko.Transport(listener.accept()[0])
            transport.add_server_key(paramiko.Ed25519Key(filename=str(host_key)))
            transport.start_server(server=server)

        threading.Thread(target=serve, daemon=True).start()
        inventory = save_stack(tmp_path / "stack", {0: listener.getsockname()[1]}, host_key, user_key)
        with Cluster(inventory, tmp_path / "stack") as cluster:
            yield server, cluster.host(inventory.nodes[0])


def test_a_node_that_sends_without_being_asked_is_cut_off(flooding: tuple[Flooding, SshHost]) -> None:
    """Nothing reads meanwhile, as while Azure works on a removal."""
    server, host = flooding
    assert host.start(["hold"], timeout=30) is None
    server.may_flood.set()
    assert server.ended.wait(60)
    assert server.sent < FLOOD / 4


def test_a_slow_reader_of_such_a_node_gets_an_error(flooding: tuple[Flooding, SshHost]) -> None:
    server, host = flooding
    server.may_flood.set()
    with pytest.raises(NodeUnreachable, match=r"node000000: .*sends more than it was asked for"):
        host.stream(["talk"], lambda _: server.ended.wait(60), timeout=120)
    assert server.sent < FLOOD / 4


def test_connections_to_nodes_acknowledge_at_once_what_they_read(host: SshHost) -> None:
    """Otherwise opening a session takes 40 ms longer than it needs."""
    host.run(["true"], timeout=30)
    assert isinstance(host._transport().sock, Prompt)


def test_what_is_read_is_acknowledged_at_once() -> None:
    """Linux delays acknowledgements on a line where both ends talk; sshd waits for them."""
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()) as plain:
        far, _ = listener.accept()
        with far, Prompt(fileno=plain.detach()) as near:
            for _ in range(8):
                near.sendall(b"?")
                far.sendall(far.recv(1))
                assert near.recv(1) == b"?"
            assert near.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
