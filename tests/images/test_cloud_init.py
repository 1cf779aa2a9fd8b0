"""What cloud-init gives a node at its first boot."""

import base64
import gzip
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import launch.remote
from images.cloud_init import (
    AGENT_USER,
    TEMPORARY_DISK,
    MetricsService,
    NodeSetup,
    cloud_config,
    known_hosts,
    node_patterns,
)
from images.recipe import recipe_for
from images.shared_mount import SHARED_FOLDER, SharedMount
from images.steps import Step, steps
from images.user_data import FOLDER, LIMIT
from launch.errors import InputError

GOLDEN = Path(__file__).parent / "golden"

SETUP = NodeSetup(
    user="azureuser",
    computer_name_prefix="node",
    subnet_prefix="10.0.0.0/22",
    host_public_key="ssh-ed25519 AAAAhost",
    user_public_key="ssh-ed25519 AAAAuser",
    host_private_key="-----BEGIN OPENSSH PRIVATE KEY-----\nhost\n-----END OPENSSH PRIVATE KEY-----\n",
    cluster_private_key="-----BEGIN OPENSSH PRIVATE KEY-----\ncluster\n-----END OPENSSH PRIVATE KEY-----\n",
)


EVERYTHING = replace(
    SETUP,
    shared=SharedMount("10.0.0.9:/export/shared"),
    nvme=True,
    metrics=MetricsService(9500, "dev", "Standard_ND96asr_v4", "southcentralus"),
    steps=steps(recipe_for("Standard_ND96asr_v4", ofed="mlnx", mpi="openmpi")),
)
LARGEST = replace(EVERYTHING, host_private_key="k" * 2000, cluster_private_key="k" * 2000)


def unpacked(file: dict[str, str]) -> str:
    content = file["content"]
    return gzip.decompress(base64.b64decode(content)).decode() if "encoding" in file else content


def masked(text: str) -> str:
    """Without what is compressed: the watcher and the steps have reviews of their own."""
    return re.sub(r'content: "H4sI[^"]*"', 'content: "(compressed)"', text)


@pytest.mark.parametrize(
    ("setup", "name"), [(SETUP, "cloud_config.yaml"), (EVERYTHING, "cloud_config_everything.yaml")]
)
def test_is_the_text_that_was_reviewed(setup: NodeSetup, name: str) -> None:
    assert masked(cloud_config(setup)) == (GOLDEN / name).read_text("utf-8")


def run_with(folder: Path, command: str, **programs: str) -> subprocess.CompletedProcess[str]:
    """Runs a line of runcmd as cloud-init does, by sh, with doubles of these programs."""
    for name, body in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    return subprocess.run(
        ["/bin/sh", "-c", command],
        env={"PATH": f"{folder}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("version", "sshd", "fits"),
    [
        ("(3, 8, 10)", "Include /etc/ssh/sshd_config.d/*.conf\nUsePAM yes", True),
        ("(3, 12, 3)", "UsePAM yes\n  include  /etc/ssh/sshd_config.d/*.conf", True),
        ("(3, 6, 8)", "Include /etc/ssh/sshd_config.d/*.conf", False),
        ("(3, 9, 18)", "UsePAM yes\n# Include /etc/ssh/sshd_config.d/*.conf", False),
    ],
)
def test_an_image_that_is_too_old_ends_cloud_init_with_the_reason(
    version: str, sshd: str, fits: bool, tmp_path: Path
) -> None:
    first = yaml.safe_load(cloud_config(EVERYTHING))["runcmd"][0]
    (tmp_path / "sshd_config").write_text(sshd)
    python = f'case $1 in -c) exec {sys.executable} -c "import sys; sys.version_info = {version}; $2" ;; esac'
    line = f"{first.replace('/etc/ssh/', f'{tmp_path}/')}\necho went on"
    ran = run_with(tmp_path, line, python3=f"{python}\necho Python {version}")
    assert (ran.returncode, ran.stdout) == ((0, "went on\n") if fits else (1, "")), ran.stderr
    assert fits or ran.stderr.startswith("this image is too old: a node needs ")


@pytest.mark.parametrize("comes", [True, False])
def test_plain_ubuntu_mounts_the_share_when_it_has_a_client_and_then_gives_it_to_the_user(
    comes: bool, tmp_path: Path
) -> None:
    document = yaml.safe_load(cloud_config(EVERYTHING))
    assert (document["package_update"], document["packages"]) == (True, ["nfs-common"])
    (command,) = (line for line in document["runcmd"] if SHARED_FOLDER in line[-1])
    assert document["runcmd"].index(command) < document["runcmd"].index([f"{FOLDER}/run"])
    mounted = tmp_path / "mounted"
    programs = {
        "mountpoint": f"[ -e {mounted} ]",
        "mount": f"echo mount $1; {f'touch {mounted}' if comes else 'false'}",
        "chown": 'echo chown "$@"',
    }
    ran = run_with(tmp_path, shlex.join(command), **programs)
    then = f"chown azureuser: {SHARED_FOLDER}" if comes else f"{SHARED_FOLDER} is not mounted"
    assert ran.stdout.splitlines() == [f"mount {SHARED_FOLDER}", then]


def test_an_image_with_a_client_installs_nothing() -> None:
    assert "packages" not in yaml.safe_load(cloud_config(replace(EVERYTHING, steps=())))


@pytest.mark.parametrize("setup", [SETUP, EVERYTHING], ids=["least", "everything"])
def test_satisfies_cloud_inits_own_schema(setup: NodeSetup, tmp_path: Path) -> None:
    document = tmp_path / "user-data"
    document.write_text(cloud_config(setup), "utf-8")
    checked = subprocess.run(
        ["cloud-init", "schema", "-c", str(document)], capture_output=True, text=True, check=False, timeout=60
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    "text", ["a: b", '"', "'", "\\", "{{ user }}", "# no comment", "ü😀", "\ttab\n\nend"]
)
def test_carries_any_content_unharmed(text: str) -> None:
    document = yaml.safe_load(cloud_config(replace(SETUP, host_private_key=text, cluster_private_key=text)))
    assert document["ssh_keys"]["ed25519_private"] == text
    assert document["write_files"][0]["content"] == text


def files(setup: NodeSetup = SETUP) -> dict[str, dict[str, str]]:
    return {file["path"]: file for file in yaml.safe_load(cloud_config(setup))["write_files"]}


def test_only_the_user_reads_the_cluster_key() -> None:
    key = files()["/home/azureuser/.ssh/id_ed25519"]
    assert (key["permissions"], key["owner"]) == ("0600", "azureuser:azureuser")
    assert key["defer"], "the account does not exist before cloud-init's last stage"


def test_never_asks_and_never_trusts_an_unknown_host() -> None:
    config = str(files()["/home/azureuser/.ssh/config"]["content"])
    assert "StrictHostKeyChecking yes" in config
    assert "BatchMode yes" in config
    assert "IdentityAgent none" in config


def test_takes_no_passwords_and_many_connections() -> None:
    sshd = str(files()["/etc/ssh/sshd_config.d/10-ranklift.conf"]["content"]).splitlines()
    assert {"PasswordAuthentication no", "MaxStartups 400:30:1000", "MaxSessions 200"} <= set(sshd)


@pytest.mark.parametrize(
    ("subnet", "last"),
    [("10.0.0.0/20", "10.0.15.*"), ("10.1.2.0/24", "10.1.2.*"), ("10.1.2.64/26", "10.1.2.*")],
)
def test_pins_the_host_key_on_the_whole_subnet(subnet: str, last: str) -> None:
    assert node_patterns(replace(SETUP, subnet_prefix=subnet))[-1] == last


@pytest.mark.parametrize(("host", "known"), [("node00000a", True), ("10.0.1.7", True), ("github.com", False)])
def test_openssh_finds_nodes_and_nobody_else(host: str, known: bool, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=60)
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    (tmp_path / "known_hosts").write_text(known_hosts(replace(SETUP, host_public_key=public)))
    found = subprocess.run(
        ["ssh-keygen", "-F", host, "-f", str(tmp_path / "known_hosts")],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (found.returncode == 0) is known


def test_shows_no_private_key_when_printed() -> None:
    assert "PRIVATE" not in json.dumps(repr(SETUP))


def unpack_agent(there: dict[str, dict[str, str]], folder: Path) -> None:
    """What a node's first boot does with the agent's archive, before the agent starts."""
    archive = "/usr/local/lib/ranklift/agent.tar"
    commands = yaml.safe_load(cloud_config(SETUP))["runcmd"]
    unpack = ["tar", "-xf", archive, "-C", str(Path(archive).parent)]
    assert commands.index(unpack) < commands.index(["systemctl", "enable", "--now", "ranklift-watch.service"])
    data = gzip.decompress(base64.b64decode(there[archive]["content"]))
    subprocess.run(["tar", "-xf", "-", "-C", str(folder)], input=data, check=True)


def test_every_node_has_the_watcher_from_its_first_boot_on(tmp_path: Path) -> None:
    there = files()
    remote = Path(launch.remote.__file__).parent
    unpack_agent(there, tmp_path)
    assert (tmp_path / "watch.py").read_bytes() == (remote / "__main__.py").read_bytes()
    for name in ("daemon", "autostop", "activity", "grants", "imds"):
        source = (remote / "agent" / f"{name}.py").read_bytes()
        assert (tmp_path / "agent" / f"{name}.py").read_bytes() == source
    unit = there["/etc/systemd/system/ranklift-watch.service"]["content"].splitlines()
    assert {f"User={AGENT_USER}", "Restart=always", "Requires=ranklift-identity.service"} <= set(unit)
    assert "ExecStart=/usr/bin/python3 -I -S /usr/local/lib/ranklift/watch.py watch /home/azureuser" in unit
    commands = yaml.safe_load(cloud_config(EVERYTHING))["runcmd"]
    units = [command[-1] for command in commands if command[0] == "systemctl"]
    assert units == [
        *("ranklift-nvme.service", "ranklift-cache.service", "ranklift-identity.service"),
        *("ranklift-watch.service", "ranklift-metrics.service"),
    ]
    assert ["systemctl", "enable", "--now", "ranklift-watch.service"] in yaml.safe_load(cloud_config(SETUP))[
        "runcmd"
    ]


def test_the_watcher_finds_all_it_imports_beside_itself(tmp_path: Path) -> None:
    unpack_agent(files(), tmp_path)
    (tmp_path / ".ranklift").mkdir()
    watch = [sys.executable, "-I", "-S", str(tmp_path / "watch.py")]
    idle = subprocess.run(
        [*watch, "idle"], capture_output=True, text=True, check=False, timeout=60, env={"HOME": str(tmp_path)}
    )
    assert (idle.returncode, set(json.loads(idle.stdout))) == (0, {"idle_s", "leads", "new"}), idle.stderr
    question = {
        "compute": {},
        "spans": {"ranklift-ttl-hours": 60},
        "idle_s": 0,
        "memory": {},
        "imds": "http://127.0.0.1:9",
        "home": str(tmp_path),
    }
    lead = subprocess.run(
        [*watch, "lead", json.dumps(question)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (lead.returncode, json.loads(lead.stdout)["able"]) == (0, False), lead.stderr


def test_nodes_serve_metrics_only_where_these_are_asked_for() -> None:
    there = files(EVERYTHING)
    unit = there["/etc/systemd/system/ranklift-metrics.service"]["content"].splitlines()
    words = "9500 10.0.0.0/22 dev Standard_ND96asr_v4 southcentralus"
    assert f"ExecStart=/bin/sh /usr/local/lib/ranklift/serve-metrics {words}" in unit
    assert {"User=azureuser", "NoNewPrivileges=yes", "MemoryMax=256M", "CPUQuota=20%"} <= set(unit)
    assert not any("metrics" in path for path in files(replace(EVERYTHING, metrics=None)))


def test_metrics_are_served_by_the_newest_node_code_that_was_pushed(tmp_path: Path) -> None:
    script = tmp_path / "serve-metrics"
    script.write_text(unpacked(files(EVERYTHING)["/usr/local/lib/ranklift/serve-metrics"]))
    for age, version in ((100, "0a"), (10, "0b"), (50, "0c")):
        code = tmp_path / ".ranklift" / "remote" / version
        code.mkdir(parents=True)
        (code / "__main__.py").write_text(f"import sys; print({version!r}, *sys.argv[1:])")
        os.utime(code, (time.time() - age, time.time() - age))
    ran = subprocess.run(
        ["/bin/sh", str(script), "9500", "10.0.0.0/22"],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.stdout, ran.stderr) == ("0b serve-metrics 9500 10.0.0.0/22\n", "")


def test_systemd_understands_the_units(tmp_path: Path) -> None:
    for path, file in files(EVERYTHING).items():
        if path.endswith(".service"):
            text = re.sub("(?m)^ExecStart=.*", "ExecStart=/bin/true", unpacked(file)).replace(
                "azureuser", "root"
            )
            (tmp_path / Path(path).name).write_text(text)
    for unit in sorted(tmp_path.iterdir()):
        shown = subprocess.run(
            ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False, timeout=60
        )
        assert unit.name not in shown.stdout + shown.stderr


def test_a_shared_folder_is_mounted_but_no_node_waits_for_it() -> None:
    document = yaml.safe_load(cloud_config(EVERYTHING))
    source, place, kind, options, *_ = document["mounts"][1]
    assert (source, place, kind) == ("10.0.0.9:/export/shared", SHARED_FOLDER, "nfs")
    assert {"nofail", "_netdev", "hard"} <= set(options.split(","))
    assert len(yaml.safe_load(cloud_config(SETUP))["mounts"]) == 1


def test_a_file_in_the_shared_folder_makes_nobody_root_and_is_no_device() -> None:
    """Everyone who may mount the folder can leave such a file there."""
    options = yaml.safe_load(cloud_config(EVERYTHING))["mounts"][1][3].split(",")
    assert {"nosuid", "nodev"} <= set(options)
    assert not {"suid", "dev", "defaults"} & set(options)


FSTAB = """
import inspect, json, sys
from unittest import mock
from cloudinit import util
from cloudinit.config import cc_mounts

def block_device(path, partition=None):
    return path == "/dev/disk/cloud/azure_resource"

fstab, mounts = sys.argv[1], json.loads(sys.argv[2])
cc_mounts.FSTAB_PATH = fstab
cc_mounts._is_block_device = block_device
cc_mounts._get_nth_partition_for_device = lambda path, number: path + "-part1" if block_device(path) else None
cc_mounts.subp.subp = lambda *_: None
util.ensure_dir = lambda *_, **__: None
cloud = mock.Mock()
cloud.device_name_to_device = {"ephemeral0": "/dev/disk/cloud/azure_resource"}.get
log = [mock.Mock()] if "log" in inspect.signature(cc_mounts.handle).parameters else []  # until 23.1
cc_mounts.handle("mounts", {"mounts": mounts}, cloud, *log, [])
"""
"""cloud-init's own module on a machine with a temporary disk of Azure's."""


@pytest.mark.parametrize("setup", [SETUP, EVERYTHING], ids=["least", "everything"])
def test_nothing_is_mounted_over_what_lies_below_mnt(setup: NodeSetup, tmp_path: Path) -> None:
    fstab = tmp_path / "fstab"
    fstab.touch()
    mounts = json.dumps(yaml.safe_load(cloud_config(setup))["mounts"])
    (python,) = re.findall("#! ?([^ \n]+)", Path(shutil.which("cloud-init") or "").read_text())[:1]
    command = [python, "-c", FSTAB, str(fstab), mounts]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    lines = [line.split() for line in fstab.read_text().splitlines()]
    shared = [SHARED_FOLDER] if setup.shared else []
    assert [line[1] for line in lines] == [TEMPORARY_DISK, *shared], "none of them lies in another"
    assert lines[0][0] == "/dev/disk/cloud/azure_resource-part1"
    assert "nofail" in lines[0][3], "a size without such a disk boots all the same"


def test_the_user_owns_the_shared_folder_where_it_came() -> None:
    line = next(
        line for line in yaml.safe_load(cloud_config(EVERYTHING))["runcmd"] if SHARED_FOLDER in line[-1]
    )
    calls = "mountpoint() { false; }; chown() { echo chown $*; }; "
    ran = subprocess.run(
        ["sh", "-c", calls + line[-1]], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout == f"{SHARED_FOLDER} is not mounted\n"
    calls = calls.replace("false", "true")
    ran = subprocess.run(
        ["sh", "-c", calls + line[-1]], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout == f"chown azureuser: {SHARED_FOLDER}\n"


def test_disks_are_joined_on_sizes_that_have_them() -> None:
    assert "/usr/local/lib/ranklift/nvme-raid" in files(EVERYTHING)
    assert "/usr/local/lib/ranklift/nvme-raid" not in files()


def test_nothing_upgrades_itself() -> None:
    text = files()["/etc/apt/apt.conf.d/99-ranklift-no-upgrades"]["content"]
    assert 'APT::Periodic::Enable "0";' in text


def test_fits_into_what_azure_takes_with_every_choice_made() -> None:
    assert len(cloud_config(LARGEST).encode()) < LIMIT * 9 / 10


def test_what_azure_would_not_take_is_refused_here() -> None:
    noise = random.Random(1).randbytes(80_000).hex()  # which no compression makes less than half
    with pytest.raises(InputError, match="build an image"):
        cloud_config(replace(SETUP, steps=(Step("10-long", "long", noise),)))


def test_no_command_that_is_logged_carries_a_key() -> None:
    secret = "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n"
    document = yaml.safe_load(
        cloud_config(replace(EVERYTHING, host_private_key=secret, cluster_private_key=secret))
    )
    for module in document.keys() - {"ssh_keys", "write_files"}:
        assert "c2VjcmV0" not in json.dumps(document[module])
    holding = [file for file in document["write_files"] if "c2VjcmV0" in unpacked(file)]
    assert [file["permissions"] for file in holding] == ["0600"]
