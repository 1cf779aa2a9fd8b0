"""What a node does at its first boot: units that are kept running, shares, and a result to ask for."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import time
from pathlib import Path

from tests.rehearsal.node_lab import Lab, lab

UNIT = "/etc/systemd/system/beat.service"
BEAT = "echo beat $$; while :; do sleep 0.2; done"
FILES = [
    {
        "path": "/usr/local/lib/ranklift/beat",
        "encoding": "gz+b64",
        "content": base64.b64encode(gzip.compress(f"#!/bin/sh\n{BEAT}\n".encode())).decode(),
        "permissions": "0755",
    },
    {
        "path": UNIT,
        "content": "[Unit]\nDescription=x\n[Service]\nUser=azureuser\n"
        "ExecStart=/usr/local/lib/ranklift/beat\nRestart=always\nRestartSec=1\n[Install]\nWantedBy=multi-user.target\n",
    },
    {
        "path": "/etc/systemd/system/once.service",
        "content": "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo \"once ran\"'\n",
    },
]


def with_modules(it: Lab, **modules: object) -> Lab:
    document = json.loads(it.user_data.partition("\n")[2])
    document["write_files"] += modules.pop("write_files", [])
    it.user_data = "#cloud-config\n" + json.dumps(document | modules)
    return it


async def until(it: Lab, number: int, command: str, wanted: str) -> str:
    """What the command says, once it is what is wanted."""
    deadline = time.monotonic() + 30
    while True:
        _, output = await it.ssh(number, command)
        if wanted in output or time.monotonic() > deadline:
            assert wanted in output, output
            return output
        await asyncio.sleep(0.1)


def test_a_unit_runs_as_the_user_and_is_started_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 0) as it:
            commands = [
                ["systemctl", "daemon-reload"],
                ["systemctl", "enable", "--now", "once.service"],
                ["systemctl", "enable", "--now", "beat.service"],
            ]
            with_modules(it, write_files=FILES, runcmd=commands)
            await it.grow([0])
            assert await it.ssh(0, "cloud-init status --wait") == (0, "status: done\n")
            first = await until(it, 0, "cat /var/log/beat.log", "beat ")
            assert await it.ssh(0, "cat /var/log/once.log") == (0, "once ran\n")
            assert await it.ssh(0, "systemctl is-active beat once") == (0, "active\nactive\n")
            pid = first.split()[1]
            assert await it.ssh(0, f"stat -c %U /proc/{pid}; kill {pid}") == (0, "azureuser\n")
            again = await until(it, 0, "cat /var/log/beat.log", "started again in 1 s\nbeat ")
            assert again.split()[-1] != pid
            assert await it.ssh(0, "systemctl stop beat; systemctl is-active beat; pgrep -c beat") == (
                1,
                "inactive\n0\n",
            )

    asyncio.run(story())


def test_what_fails_at_a_first_boot_is_that_node_s_result(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 1) as it:
            with_modules(it, runcmd=["hostname", ["systemctl", "enable", "--now", "absent.service"]])
            await it.grow([1])
            assert await it.ssh(0, "cloud-init status --wait") == (0, "status: done\n")
            status, output = await it.ssh(1, "cloud-init status --wait --long")
            assert status == 1
            assert output.startswith("status: error\ndetail: ")
            assert "scripts_user" in output
            _, log = await it.ssh(1, "cat /var/log/cloud-init-output.log")
            assert log == "node000001\nUnit absent.service could not be found.\n"
            _, result = await it.ssh(1, "cat /run/cloud-init/result.json")
            assert len(json.loads(result)["v1"]["errors"]) == 1

    asyncio.run(story())


def test_all_nodes_see_one_share(tmp_path: Path) -> None:
    async def story() -> None:
        async with lab(tmp_path, 0) as it:
            share = ["10.0.0.9:/srv/shared", "/mnt/nfs", "nfs", "vers=4.1,nofail", "0", "0"]
            with_modules(it, mounts=[share])
            await it.grow([0, 1])
            assert await it.ssh(0, "echo here >/mnt/nfs/note; ls /mnt") == (0, "nfs\n")
            assert await it.ssh(1, "cat /mnt/nfs/note; mountpoint -q /mnt/nfs") == (0, "here\n")

    asyncio.run(story())
