"""A job that the operator has signed is granted the nodes' identity once, while its runner lives."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from images.cloud_init import allowed_signers
from launch.job.identity_request import NotSigned, signed_request
from launch.remote.agent.grants import Grants
from launch.remote.agent.metadata_door import Door
from launch.remote.base import timing
from launch.remote.node import identity_grant
from launch.remote.node.prepare import Unfit
from tests.rehearsal.node_lab import make_key

if TYPE_CHECKING:
    from _socket import socket as Connection

HERE = os.uname().nodename
NFT = """\
#!/bin/sh
echo "$*" >>{folder}/said
case "$*" in
"add element inet ranklift_identity granted {{ {user} }}") : >{folder}/granted ;;
"flush set inet ranklift_identity granted") rm -f {folder}/granted ;;
*) echo "what is $*"; exit 1 ;;
esac
"""


class Agent:
    """An agent's socket with a double of nft, whose set of users is a file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.public = folder, make_key(folder / "user")
        (folder / "signers").write_text(allowed_signers(self.public))
        (folder / "bin").mkdir()
        self.set_nft(NFT.format(folder=folder, user=os.getuid()))
        self._connections: list[Connection] = []
        self.open()

    def set_nft(self, text: str) -> None:
        nft = self.folder / "bin/nft"
        nft.write_text(text)
        nft.chmod(0o755)

    def open(self) -> None:
        self.grants = Grants(str(self.folder / "state"), str(self.folder / "signers"), os.getuid())
        path = str(self.folder / "metadata")
        self.door = Door(path, "http://127.0.0.1:9", os.getuid(), self.grants).start()

    def close(self) -> None:
        """End the agent, and each grant with its connection."""
        for connection in [*self._connections]:
            self.end(connection)
        try:
            self.wait_for(lambda: not self.children())
        finally:
            os.kill(self.door, signal.SIGKILL)
            os.waitpid(self.door, 0)

    def children(self) -> list[int]:
        return [int(pid) for pid in Path(f"/proc/{self.door}/task/{self.door}/children").read_text().split()]

    def signed(self, job: str, *nodes: str, key: str = "user") -> str:
        return signed_request(job, nodes or ("other", HERE), self.folder / key)

    @property
    def service(self) -> str:
        return f"unix:{self.folder / 'metadata'}"

    def verify(self, signed: str) -> None:
        identity_grant.verify(signed, self.service)

    def begin(self, signed: str) -> Connection:
        self._connections.append(identity_grant.begin(signed, self.service))
        return self._connections[-1]

    def end(self, connection: Connection) -> None:
        self._connections.remove(connection)
        identity_grant.end(connection)

    @property
    def is_open(self) -> bool:
        return (self.folder / "granted").exists()

    def wait_for(self, wanted: Callable[[], bool]) -> None:
        until = time.monotonic() + 30
        while not wanted():
            assert time.monotonic() < until
            time.sleep(0.02)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    made = Agent(tmp_path)
    yield made
    made.close()


def test_a_signed_job_is_granted_when_its_ranks_start_and_until_its_connection_ends(agent: Agent) -> None:
    agent.verify(agent.signed("a-1"))
    assert not agent.is_open, "a job that is not started yet holds no grant"
    connection = agent.begin(agent.signed("a-1"))
    assert agent.is_open
    identity_grant.wait_for("a-1", str(agent.folder / "state"))  # another runner of the job under mpirun
    agent.end(connection)
    assert not agent.is_open, "the slots are free then"
    assert not list(agent.folder.glob("state/signature*"))


def test_the_last_of_two_grants_closes_the_service(agent: Agent) -> None:
    first, second = agent.begin(agent.signed("a-1")), agent.begin(agent.signed("b-2"))
    agent.end(first)
    assert agent.is_open
    agent.end(second)
    assert not agent.is_open


def test_a_killed_runner_loses_its_grant(agent: Agent) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            agent.begin(agent.signed("a-1"))
            os.write(writing, b"x")
            signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    assert os.read(reading, 1) == b"x"
    os.close(reading)
    assert agent.is_open
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    agent.wait_for(lambda: not agent.is_open)


def test_a_killed_holder_of_a_grant_leaves_none(agent: Agent) -> None:
    agent.begin(agent.signed("a-1"))
    for child in agent.children():
        os.kill(child, signal.SIGKILL)
    agent.wait_for(lambda: not agent.is_open)


def forged(agent: Agent, signed: str) -> dict[str, str]:
    make_key(agent.folder / "thief")
    text, begin, signature = signed.partition("-----BEGIN")
    other = agent.signed("b-2").partition("-----BEGIN")[2]
    return {
        "another key": agent.signed("a-1", key="thief"),
        "another job's signature": text + begin + other,
        "another job in a signed text": signed.replace("identity a-1", "identity a-2"),
        "one more node in a signed text": agent.signed("a-1", "other").replace("other\n", f"other\n{HERE}\n"),
        "a broken signature": text + begin + " SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n",
        "a signature of the same text for something else": text + begin + signature[: len(signature) // 2],
    }


def test_what_the_operator_has_not_signed_is_refused(agent: Agent) -> None:
    signed = agent.signed("a-1")
    for what, request in forged(agent, signed).items():
        with pytest.raises(Unfit, match=r"the signature for job .* is not the operator's: "):
            agent.verify(request)
            pytest.fail(what)
    assert not (agent.folder / "said").exists() and not agent.is_open


@pytest.mark.parametrize(
    "request_text",
    ["", "identity a-1\n", "identity ../a\nn\n-----BEGIN SSH SIGNATURE-----", "identity A\n", "x" * 9000],
)
def test_what_is_no_request_is_refused(agent: Agent, request_text: str) -> None:
    with pytest.raises(Unfit, match="the request is not a signed one"):
        agent.verify(request_text)


def test_a_request_that_was_signed_for_other_nodes_is_refused(agent: Agent) -> None:
    with pytest.raises(Unfit, match=rf"job a-1 was signed for other nodes than {re.escape(HERE)}"):
        agent.verify(agent.signed("a-1", "node000007", f"{HERE}x"))


def test_a_signature_is_used_once_whatever_agent_verifies_it(agent: Agent) -> None:
    signed = agent.signed("a-1")
    agent.end(agent.begin(signed))
    for _ in range(2):
        for ask in (agent.verify, agent.begin):
            with pytest.raises(Unfit, match="has granted the identity to job a-1 before, and grants it once"):
                ask(signed)
        assert not agent.is_open
        agent.close()
        agent.open()


def test_of_two_that_were_verified_at_once_one_is_granted_it(agent: Agent) -> None:
    said: list[str] = []
    job = agent.grants.verified(agent.signed("a-1"))
    for _ in range(2):
        ours, theirs = socket.socketpair()
        ours.close()
        agent.grants.hold(job, theirs, said.append)
        theirs.close()
    granted, refused = said
    assert granted == "" and "grants it once" in refused


def test_a_request_that_was_not_verified_before_is_verified_when_it_is_granted(agent: Agent) -> None:
    make_key(agent.folder / "thief")
    with pytest.raises(Unfit, match="is not the operator's"):
        agent.begin(agent.signed("a-1", key="thief"))
    assert not (agent.folder / "said").exists()


def test_a_job_that_went_back_to_the_queue_may_ask_again(agent: Agent) -> None:
    signed = agent.signed("a-1")
    agent.verify(signed)
    agent.verify(signed)
    agent.begin(signed)


def test_rules_that_cannot_be_changed_refuse_the_job(agent: Agent) -> None:
    agent.set_nft("#!/bin/sh\necho Operation not permitted >&2\nexit 1\n")
    with pytest.raises(Unfit, match="the node's rules cannot be changed: Operation not permitted"):
        agent.begin(agent.signed("a-1"))
    agent.set_nft(NFT.format(folder=agent.folder, user=os.getuid()))


def test_a_node_whose_agent_grants_nothing_refuses_the_job(tmp_path: Path) -> None:
    make_key(tmp_path / "user")
    signed = signed_request("a-1", [HERE], tmp_path / "user")
    with pytest.raises(Unfit, match=r"may not use the nodes' identity here: .*metadata: .*No such file"):
        identity_grant.verify(signed, f"unix:{tmp_path}/metadata")
    door = Door(str(tmp_path / "metadata"), "http://127.0.0.1:9", os.getuid())
    thread = threading.Thread(target=door.serve, args=(1.0,))
    thread.start()
    with pytest.raises(Unfit, match="agent does not pass this on"):
        identity_grant.verify(signed, f"unix:{tmp_path}/metadata")
    thread.join()
    door.close()


def test_ranks_do_not_start_before_the_nodes_first_runner_was_granted_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "GRANT_S", 0.1)
    (tmp_path / "identity").mkdir()
    (tmp_path / "identity/a-1").write_text("")
    with pytest.raises(Unfit, match="the runner of this node's first rank was not granted it"):
        identity_grant.wait_for("a-1", str(tmp_path))


def test_a_grants_file_is_not_writable_by_others(agent: Agent) -> None:
    agent.begin(agent.signed("a-1"))
    assert stat.S_IMODE((agent.folder / "state/identity/a-1").stat().st_mode) & 0o022 == 0


def test_a_key_that_is_not_there_signs_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotSigned, match="id_ed25519 does not sign the job's request"):
        signed_request("a-1", [HERE], tmp_path / "id_ed25519")
