"""The node's nftables rules, loaded into a kernel: who reaches what answers the VM alone."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from images.templates import render

PROGRAM = """\
import json, socket, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
servers = []
PORTS = {"169.254.169.254": (80, 443), "168.63.129.16": (53, 80, 32526), "192.0.2.7": (80,)}
for address, ports in PORTS.items():
    subprocess.run(["ip", "addr", "add", f"{address}/32", "dev", "lo"], check=True)
    servers += [socket.create_server((address, port)) for port in ports]
subprocess.run(["/usr/sbin/nft", "-f", "-"], input=sys.argv[1].encode(), check=True)
for words in json.loads(sys.argv[2]):
    subprocess.run(["/usr/sbin/nft", *words], check=True)
found = {}
for server in servers:
    host, port = server.getsockname()
    try:
        socket.create_connection((host, port), 2).close()
        found[f"{host}:{port}"] = "answers"
    except ConnectionRefusedError:
        found[f"{host}:{port}"] = "refused"
    except OSError as error:
        found[f"{host}:{port}"] = str(error)
print(json.dumps(found))
"""
AGENT, OTHER = 990, 1000


def reached(user: int, *changes: list[str]) -> dict[str, str]:
    """What a process of this user gets on a node whose agent is AGENT, in a network of the test's own."""
    rules = render("identity.nft.j2", agent=AGENT)
    space = ["unshare", "--user", f"--map-user={user}", f"--map-group={user}", "--keep-caps", "--net"]
    done = subprocess.run(
        [*space, sys.executable, "-c", PROGRAM, rules + rules, json.dumps(changes)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


ELSEWHERE = {"168.63.129.16:53": "answers", "192.0.2.7:80": "answers"}
METADATA = ("169.254.169.254:80", "169.254.169.254:443")
HOST_AGENT = ("168.63.129.16:80", "168.63.129.16:32526")


@pytest.mark.parametrize(
    ("user", "metadata", "host_agent"),
    [(0, "answers", "answers"), (AGENT, "answers", "refused"), (OTHER, "refused", "refused")],
    ids=["root", "the agent", "a job"],
)
def test_the_metadata_service_answers_root_and_the_agent_alone(
    user: int, metadata: str, host_agent: str
) -> None:
    expected = {**dict.fromkeys(METADATA, metadata), **dict.fromkeys(HOST_AGENT, host_agent), **ELSEWHERE}
    assert reached(user) == expected


GRANT = ["add", "element", "inet", "ranklift_identity", "granted", f"{{ {OTHER} }}"]
END = ["flush", "set", "inet", "ranklift_identity", "granted"]


@pytest.mark.parametrize(
    ("changes", "metadata"),
    [
        ([GRANT], "answers"),
        ([GRANT, GRANT], "answers"),
        ([GRANT, END], "refused"),
        ([END], "refused"),
        ([GRANT, END, GRANT], "answers"),
    ],
    ids=["granted", "granted twice", "ended", "ended without any", "granted again"],
)
def test_a_granted_user_reaches_the_metadata_service_alone_until_the_end(
    changes: list[list[str]], metadata: str
) -> None:
    expected = {**dict.fromkeys(METADATA, metadata), **dict.fromkeys(HOST_AGENT, "refused"), **ELSEWHERE}
    assert reached(OTHER, *changes) == expected


def test_a_grant_to_another_user_is_nobody_elses() -> None:
    assert reached(OTHER + 1, GRANT)["169.254.169.254:80"] == "refused"
