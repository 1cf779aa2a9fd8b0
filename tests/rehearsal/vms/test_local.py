"""Rehearsed VMs are real: separate machines to everything that looks, and gone when they end."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from launch.errors import InputError, ReplaceNodeError, RetryError
from rehearsal.vms.api import Machine, Settings
from rehearsal.vms.local import LocalMachines
from tests.rehearsal.node_lab import NETWORK, gateways, in_namespace, lab, private_ip

ROOT = Path(__file__).resolve().parents[3]


def test_nodes_are_machines_of_their_own(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 3) as it:
            whole = await asyncio.gather(*(it.ssh(number, "hostname; id -un; pwd") for number in range(3)))
            assert whole == [(0, f"node00000{number}\nazureuser\n/home/azureuser\n") for number in range(3)]
            # From node to node by name, with the key and the pinned host key that cloud-init brought.
            assert await it.ssh(0, "ssh -o BatchMode=yes node000002 hostname") == (0, "node000002\n")
            assert await it.ssh(1, "touch /tmp/mine ~/mine /run/mine /var/log/mine /dev/shm/mine") == (0, "")
            _, seen = await it.ssh(2, "ls /tmp ~ /run /var/log /dev/shm; ps -e -o args=; ls /sys/class/net")
            assert "mine" not in seen
            assert seen.count("init /etc/rehearsal/init") == 1
            assert "python" not in seen
            assert seen.endswith("eth0\nlo\n")
            # The machine underneath cannot be harmed, nor seen more of than it must.
            _, output = await it.ssh(0, f"touch /usr/x; echo 1 >/proc/sys/kernel/panic; ls {tmp_path} {ROOT}")
            assert output.count("Read-only file system") == 2
            assert output.count("No such file or directory") == 2
            # No library takes two of them for one machine whose memory they share.
            identity = "cat /proc/sys/kernel/random/boot_id; readlink /proc/self/ns/ipc"
            result = {await it.ssh(number, identity) for number in range(3)}
            assert len({output for _, output in result}) == 3
            assert len({output.split()[0] for _, output in result}) == 3
            assert await it.ssh(0, "tty", "-tt") == (0, "/dev/pts/0\r\n")
            _, capabilities = await it.ssh(0, "grep -E 'Cap(Inh|Prm|Eff|Amb)' /proc/self/status")
            assert capabilities.count("0000000000000000") == 4

    asyncio.run(story())


KEYRINGS = """\
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
first = {"x86_64": 248, "aarch64": 217}[os.uname().machine]
for number in range(first - 1, first + 4):
    print(libc.syscall(number, -1, -1, -1, -1, -1), errno.errorcode.get(ctypes.get_errno()))
    ctypes.set_errno(0)
"""


def test_the_keys_that_the_kernel_keeps_for_the_user_are_no_nodes(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 1) as it:
            status, out = await it.ssh(0, f"python3 -c {shlex.quote(KEYRINGS)}")
            before, *refused, after = out.splitlines()
            assert (status, refused) == (0, ["-1 ENOSYS"] * 3)
            assert "ENOSYS" not in before + after

    asyncio.run(story())


def test_the_nodes_python_and_its_programs_work_in_a_checkout_below_tmp(tmp_path: Path) -> None:
    made = tmp_path / "checkout" / ".venv-node"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    program = made / "bin" / "program"
    program.write_text(f"#!{made}/bin/python\nimport sys; print(sys.prefix)\n")
    program.chmod(0o755)
    project = tmp_path / "project"
    project.mkdir()
    (project / ".venv-node").symlink_to(made)

    async def story() -> None:
        for node_python in (made, project / ".venv-node"):
            folder = tmp_path / node_python.parent.name / "lab"
            folder.mkdir()
            async with lab(folder, 1, node_python=node_python) as it:
                assert await it.ssh(0, "program; ls /tmp/x") == (
                    2,
                    f"{made}\nls: cannot access '/tmp/x': No such file or directory\n",
                )

    asyncio.run(story())


def test_nodes_of_a_project_in_shared_memory_boot_with_a_shared_memory_of_their_own(tmp_path: Path) -> None:
    made = tmp_path / "checkout" / ".venv-node"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)

    async def story(project: Path) -> None:
        (project / ".venv-node").symlink_to(made)
        async with lab(tmp_path, 1, node_python=project / ".venv-node") as it:
            assert await it.ssh(0, "hostname; ls /dev/shm") == (0, "node000000\n")

    with tempfile.TemporaryDirectory(dir="/dev/shm") as project:
        asyncio.run(story(Path(project)))


def test_growing_leaves_those_there_alone_and_removing_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 2) as it:
            began = await it.ssh(0, "cut -d' ' -f22 /proc/1/stat")
            await it.grow([1, 2])
            assert await it.ssh(0, "cut -d' ' -f22 /proc/1/stat; grep -c node /etc/hosts") == (
                0,
                f"{began[1]}3\n",
            )
            space = (await it.machines.status())["networks"][NETWORK]["user_namespace"]
            before = len(in_namespace(space))
            await it.machines.remove(NETWORK, ["node000001", "node000002", "node000009"])
            assert len(in_namespace(space)) <= before - 4  # fewer: an ssh session may just have been ending
            assert await it.machines.running(NETWORK) == {"node000000"}
            assert await it.ssh(0, "grep -c node /etc/hosts") == (0, "1\n")
            await it.machines.close()
            assert in_namespace(space) == []
            assert [path.name for path in (tmp_path / "nodes").iterdir()] == ["image"]
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((it.address, 50000))

    asyncio.run(story())


def test_a_dead_node_is_gone_at_once_and_can_be_booted_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 2) as it:
            asleep = asyncio.create_task(it.ssh(1, "sleep 60"))
            await it.ssh(1, "touch ~/kept")
            await it.machines.fault(NETWORK, "node000001", "death")
            began = time.monotonic()
            assert (await asleep)[0] == 255
            assert (await it.ssh(1, "true"))[0] == 255
            assert time.monotonic() - began < 5
            assert await it.machines.running(NETWORK) == {"node000000"}
            assert (await it.ssh(0, "hostname"))[0] == 0
            await it.grow([1])
            assert await it.ssh(1, "ls") == (0, "kept\n")

    asyncio.run(story())


def test_a_partition_is_silence_until_it_heals(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 2) as it:
            counting = asyncio.create_task(it.ssh(1, "sleep 2; echo came through"))
            await asyncio.sleep(1)
            await it.machines.fault(NETWORK, "node000001", "partition")
            # No answer at all: a request to connect runs into its time limit, as with Azure's balancer.
            with pytest.raises(TimeoutError):
                await asyncio.to_thread(socket.create_connection, (it.address, 50001), 0.5)
            status, output = await it.ssh(0, "timeout 1 bash -c '</dev/tcp/node000001/22'; echo $?")
            assert (status, output) == (0, "124\n")
            assert await it.machines.running(NETWORK) == {"node000000", "node000001"}
            await asyncio.sleep(1.5)
            assert not counting.done()
            await it.machines.fault(NETWORK, "node000001", "heal")
            assert await counting == (0, "came through\n")
            assert await it.ssh(1, "hostname") == (0, "node000001\n")
            with pytest.raises(InputError, match="node000007"):
                await it.machines.fault(NETWORK, "node000007", "death")

    asyncio.run(story())


def test_half_closed_connections_and_much_data_pass_the_balancer(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 1) as it:
            process = await asyncio.create_subprocess_exec(
                *("ssh", "-F", "none", "-i", str(tmp_path / "key"), "-p", "50000"),
                *("-o", f"UserKnownHostsFile={tmp_path / 'known_hosts'}", f"azureuser@{it.address}"),
                "tr a b | tee >(wc -c >&2)",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            out, counted = await process.communicate(b"a" * 8_000_000)
            assert out == b"b" * 8_000_000
            assert counted.strip() == b"8000000"
            await it.machines.unforward(NETWORK, (it.address, 50000))
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((it.address, 50000))

    asyncio.run(story())


def test_two_networks_with_the_same_addresses_do_not_meet(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 1) as it:
            await it.machines.create_network("other", "10.0.0.0/16")
            await it.machines.boot("other", [it.machine(0), it.machine(1)])
            other = await it.machines.public_address()
            assert other != it.address
            assert await it.ssh(0, "timeout 1 bash -c '</dev/tcp/10.0.0.5/22'; echo $?") == (0, "124\n")
            assert await it.machines.running("other") == {"node000000", "node000001"}

    asyncio.run(story())


def test_a_load_balancers_port_that_another_program_has_is_named_and_free_again_works(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 1) as it:
            with socket.create_server((it.address, 50001)):
                result = rf"port 50001 of {it.address}, the load balancer's port for 10\.0\.0\.5:22, is taken"
                with pytest.raises(RetryError, match=result):
                    await it.grow([1])
            await it.machines.forward(NETWORK, (it.address, 50001), (private_ip(1), 22))
            assert await it.ssh(1, "hostname") == (0, "node000001\n")

    asyncio.run(story())


def test_what_cannot_boot_is_named(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 1, nodes_limit=2) as it:
            bad = Machine("node000001", private_ip(1), "azureuser", (), "#cloud-config\nbootcmd: [true]\n")
            with pytest.raises(ReplaceNodeError, match="node000001: cloud-init: cloud-config bootcmd"):
                await it.machines.boot(NETWORK, [bad])
            with pytest.raises(InputError, match="--nodes-limit = 2: 1 running and 2 more requested"):
                await it.machines.boot(NETWORK, [it.machine(1), it.machine(2)])
            assert await it.machines.running(NETWORK) == {"node000000"}

    asyncio.run(story())


def test_open_mpi_runs_over_four_nodes(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 4) as it:
            hosts = ",".join(f"node00000{number}" for number in range(4))
            status, output = await it.ssh(0, f"mpirun --host {hosts} hostname 2>/dev/null | sort")
            assert (status, output.split()) == (0, hosts.split(","))

    asyncio.run(story())


SCRIPT = """
    import asyncio, sys, os
    from pathlib import Path
    from tests.rehearsal.node_lab import ASK_ECHO, NETWORK, Echo, lab

    async def story():
        async with lab(Path(sys.argv[1]), 2, metadata=Echo()) as it:
            ask = "id -u; ssh -o BatchMode=yes node000000 hostname; " + ASK_ECHO
            print(await it.ssh(1, ask), flush=True)
            if sys.argv[2] == "hang":
                await it.machines.set_outbound(NETWORK, [])
            print((await it.machines.status())["networks"][NETWORK]["user_namespace"], flush=True)
            if sys.argv[2] == "hang":
                sys.stdin.read()

    asyncio.run(story())
"""


def test_an_ordinary_user_gets_the_same(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("every other test here is one of an ordinary user already")
    other = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", sys.executable, "-B", "-c"]
    if subprocess.run([*other, "import infra"], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("another user cannot read this checkout")
    # Below no folder of root's, which the other user could not pass.
    folder = Path(subprocess.check_output(["mktemp", "-d", "-p", "/var/tmp"], text=True).strip())
    shutil.chown(folder, "nobody", "nogroup")
    try:
        done = subprocess.run(
            [*other, textwrap.dedent(SCRIPT), str(folder), "end"],
            cwd=ROOT, env={**os.environ, "HOME": str(folder), "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stdout.startswith("(0, '1000\\nnode000000\\n10.0.0.5\\n')"), done.stderr
    finally:
        shutil.rmtree(folder)


def test_nothing_outlives_a_killed_daemon(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path), "hang"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as daemon:  # fmt: skip
        assert daemon.stdout is not None
        assert daemon.stdout.readline().startswith("(0, ")
        alive = in_namespace(space := daemon.stdout.readline().strip())
        assert len(alive) >= 5
        (gateway,) = gateways(daemon.pid)
        daemon.kill()
        daemon.wait()
        deadline = time.monotonic() + 10
        passed_on = Path(f"/proc/{gateway}")
        while (in_namespace(space) or passed_on.exists()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert in_namespace(space) == []
        assert not passed_on.exists()
        assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def test_a_network_that_is_not_there_is_named(tmp_path: Path) -> None:
    machines = LocalMachines(Settings(tmp_path))
    with pytest.raises(InputError, match="nowhere"):
        asyncio.run(machines.boot("nowhere", []))
    asyncio.run(machines.delete_network("nowhere"))
    assert asyncio.run(machines.running("nowhere")) == frozenset()
