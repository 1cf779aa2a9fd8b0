"""Command lines, variables and preparations of the container runtimes."""

from __future__ import annotations

import csv
import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launch.remote.base.records import BARE
from launch.remote.node.prepare import Unfit
from launch.remote.node.runtimes import charliecloud, docker, enroot
from launch.remote.node.runtimes.container import read_image_variables
from launch.remote.node.runtimes.container_kinds import CONTAINERS, container_of
from launch.remote.node.runtimes.node_facts import NodeFacts, closed_mounts, shared_mounts
from tests.launch.cluster import ORDINARY

GOLDEN = Path(__file__).parent / "golden"
PLAIN = NodeFacts(
    uid=1000,
    gid=1000,
    groups=(44, 999),
    folders=("/home/azureuser", "/mnt/nfs", "/tmp"),
    closed=(),
    files=(),
    devices=(),
    has_gpus=False,
    has_nvidia_toolkit=False,
    limits=(("memlock", 65536, 65536), ("stack", 8388608, -1)),
)
HPC = replace(
    PLAIN,
    files=("/opt/microsoft", "/etc/nccl.conf"),
    devices=("/dev/infiniband", "/dev/gdrdrv"),
    has_gpus=True,
    has_nvidia_toolkit=True,
    limits=(("memlock", -1, -1),),
)
ENROOT = ("enroot", "squashfuse", "fuse-overlayfs")
CWD = "/home/azureuser/.ranklift/jobs/t-1/work"
RANK = ["python3", "-u", "train.py", "--text", "a b $HOME"]
NAMES = {"RANK": "0", "WANDB_API_KEY": "a secret"}


def golden(name: str, argv: list[str]) -> None:
    path = GOLDEN / name
    text = "".join(f"{shlex.quote(word)}\n" for word in argv)
    if os.environ.get("WRITE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text


@pytest.mark.parametrize(("name", "node"), [("plain", PLAIN), ("hpc", HPC)])
def test_dockers_command_line(name: str, node: NodeFacts) -> None:
    argv = docker.docker_argv("docker", "ranklift/0f", ["job=t-1"], "/ids/0", NAMES, CWD, node, RANK)
    golden(f"docker-{name}.txt", argv)


@pytest.mark.parametrize(("name", "node"), [("plain", PLAIN), ("hpc", HPC)])
def test_enroots_command_line(name: str, node: NodeFacts) -> None:
    argv = enroot.enroot_argv("enroot", "/images/0f/image.sqsh", "/job/rc", NAMES, CWD, node, RANK)
    golden(f"enroot-{name}.txt", argv)


@pytest.mark.parametrize(("name", "node"), [("plain", PLAIN), ("hpc", HPC)])
def test_charlieclouds_command_line(name: str, node: NodeFacts) -> None:
    golden(f"charliecloud-{name}.txt", charliecloud.holder_argv("ch-run", "/images/0f/root", node))


def test_docker_runs_no_image_of_its_public_registry_and_stores_no_output() -> None:
    argv = docker.docker_argv("docker", "ranklift/0f", ["job=t-1"], "/ids/0", NAMES, CWD, PLAIN, RANK)
    for option, value in (("--pull", "never"), ("--log-driver", "none")):
        assert argv[argv.index(option) + 1] == value


def test_a_folder_of_any_name_is_mounted_or_refused(tmp_path: Path) -> None:
    node = replace(PLAIN, folders=('/mnt/a, "b"', "/mnt/c d"))
    argv = docker.docker_argv("docker", "ranklift/0f", ["job=t-1"], "/ids/0", NAMES, CWD, node, RANK)
    mounts = [argv[place + 1] for place, word in enumerate(argv) if word == "--mount"]
    quoted, plain, *_ = csv.reader(mounts)
    assert quoted == ["type=bind", 'source=/mnt/a, "b"', 'target=/mnt/a, "b"']
    assert plain == ["type=bind", "source=/mnt/c d", "target=/mnt/c d"]
    argv = enroot.enroot_argv("enroot", "/image.sqsh", "/job/rc", NAMES, CWD, node, RANK)
    assert argv[argv.index("--mount") + 3] == "/mnt/c\\040d:/mnt/c\\040d:none:x-create=auto,rbind"


def test_a_disk_at_opt_does_not_hide_the_images_programs() -> None:
    mounts = "/dev/sdc /opt ext4 rw 0 0\n/dev/sdd /opt/data ext4 rw 0 0\n"
    assert shared_mounts(mounts) == ["/opt/data"]


@pytest.mark.parametrize(
    ("kind", "options", "closed"),
    [
        ("fuse.sshfs", "rw,user_id=1000,group_id=1000", ["/data"]),
        ("fuse", "rw,user_id=1000,group_id=1000", ["/data"]),
        ("fuse.blobfuse2", "rw,user_id=1000,group_id=1000,allow_other", []),
        ("fuse.blobfuse2", "rw,user_id=0,group_id=0", []),
        ("nfs4", "rw", []),
    ],
)
def test_mounts_that_only_their_user_can_enter(kind: str, options: str, closed: list[str]) -> None:
    assert closed_mounts(f"x /data {kind} {options} 0 0\n") == closed


def test_no_value_of_a_variable_is_on_a_command_line() -> None:
    for argv in (
        docker.docker_argv("docker", "ranklift/0f", ["job=t-1"], "/ids/0", NAMES, CWD, HPC, RANK),
        enroot.enroot_argv("enroot", "/image.sqsh", "/job/rc", NAMES, CWD, HPC, RANK),
        charliecloud.holder_argv("ch-run", "/root", HPC),
    ):
        assert not [word for word in argv if "a secret" in word]


def spec(folder: Path, runtime: str = "charliecloud") -> Any:
    """What a runner of a job in an image gets."""
    image = {"kind": "image", "id": "0f", "path": str(folder), "runtime": runtime, "title": "pytorch:24"}
    return {"job": "t-1", "folder": str(folder / "job"), "environment": image, "env": {}, "user_env": {}}


class TestImageVariables:
    def test_both_forms_of_a_configuration_are_read(self, tmp_path: Path) -> None:
        for config in ({"config": {"Env": ["A=b=c", "EMPTY="]}}, {"Env": ["A=b=c", "EMPTY="]}):
            (tmp_path / "config.json").write_text(json.dumps(config))
            assert read_image_variables(str(tmp_path)) == {"A": "b=c", "EMPTY": ""}
        (tmp_path / "config.json").write_text('{"config": {"Env": null}}')
        assert read_image_variables(str(tmp_path)) == {}

    def test_an_image_that_is_not_there_is_refused_by_its_folder(self, tmp_path: Path) -> None:
        with pytest.raises(
            Unfit, match=f"{tmp_path} is not on this node any more: `fab environment.rm {tmp_path.name}`"
        ):
            read_image_variables(str(tmp_path))

    @pytest.mark.parametrize("text", ["{", "[]", '{"config": 3}', '{"Env": [3]}'])
    def test_a_torn_configuration_is_refused_by_its_file(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(
            Unfit,
            match=f"{tmp_path}/config.json cannot be read: .*; run `fab environment.rm {tmp_path.name}`",
        ):
            read_image_variables(str(tmp_path))


class TestMountPoints:
    def test_folders_and_files_are_made_in_the_image(self, tmp_path: Path) -> None:
        for _ in range(2):
            charliecloud.make_mount_points(str(tmp_path), ["/proc", "/home/me/data"], ["/etc/nccl.conf"])
        assert (tmp_path / "home/me/data").is_dir()
        assert (tmp_path / "etc/nccl.conf").read_text() == ""

    def test_another_job_may_make_the_same_folder_meanwhile(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os.path, "exists", lambda _path: False)  # not yet when it was looked for
        for _ in range(2):
            charliecloud.make_mount_points(str(tmp_path), ["/home/me"], ["/etc/hosts"])
        assert (tmp_path / "home/me").is_dir()

    def test_a_files_contents_stay(self, tmp_path: Path) -> None:
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc/hosts").write_text("127.0.0.1 localhost\n")
        charliecloud.make_mount_points(str(tmp_path), [], ["/etc/hosts"])
        assert (tmp_path / "etc/hosts").read_text() == "127.0.0.1 localhost\n"

    def test_a_stored_image_is_read_only(self, tmp_path: Path) -> None:
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc").chmod(0o500)
        tmp_path.chmod(0o500)
        code = (
            "from launch.remote.node.runtimes.charliecloud import make_mount_points; import sys; "
            "make_mount_points(sys.argv[1], ['/home/me'], ['/etc/hosts'])"
        )
        subprocess.run([*ORDINARY, sys.executable, "-c", code, str(tmp_path)], check=True)
        assert (tmp_path / "home/me").is_dir()
        assert (tmp_path / "etc/hosts").is_file()

    def test_a_link_that_could_lead_out_of_the_image_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "outside").mkdir()
        (tmp_path / "root").mkdir()
        (tmp_path / "root/home").symlink_to(tmp_path / "outside")
        with pytest.raises(Unfit, match="/home/me cannot be mounted in the image: its /home is a link"):
            charliecloud.make_mount_points(str(tmp_path / "root"), ["/home/me"], [])
        assert list((tmp_path / "outside").iterdir()) == []

    def test_a_link_in_place_of_a_file_that_ch_run_replaces_stays(self, tmp_path: Path) -> None:
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc/resolv.conf").symlink_to("../run/resolv.conf")
        charliecloud.make_mount_points(str(tmp_path), [], ["/etc/resolv.conf"])
        assert (tmp_path / "etc/resolv.conf").is_symlink()


class TestRefusals:
    @pytest.fixture(autouse=True)
    def _image(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "config.json").write_text("{}")
        (tmp_path / "job").mkdir()
        (tmp_path / "bin").mkdir()
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    @staticmethod
    def refused(made: Any, *answers: tuple[int, bytes]) -> str:
        given = iter(answers)
        with pytest.raises(Unfit) as refused:
            made.ready(lambda _argv, _limit: next(given), lambda _wait: None)
        return str(refused.value)

    def test_a_runtime_that_is_not_known(self, tmp_path: Path) -> None:
        with pytest.raises(Unfit, match="runtime = jail: not known here; use charliecloud, docker, enroot"):
            container_of(spec(tmp_path, "jail"))

    @pytest.mark.parametrize("runtime", CONTAINERS)
    def test_a_runtime_that_the_node_lacks(self, tmp_path: Path, runtime: str) -> None:
        words = self.refused(CONTAINERS[runtime](spec(tmp_path, runtime), PLAIN))
        assert words.startswith(f"runtime = {runtime}: ")
        assert "command not found; choose an image of the nodes that has it" in words

    @pytest.mark.parametrize(
        ("runtime", "command", "file", "answers"),
        [
            ("charliecloud", "ch-run", "root", ()),
            ("enroot", "enroot", "image.sqsh", ()),
            ("docker", "docker", "image.tar", ((0, b"20.10"), (1, b"no such image"))),
        ],
    )
    def test_an_image_that_the_node_lacks(
        self, tmp_path: Path, runtime: str, command: str, file: str, answers: tuple[tuple[int, bytes], ...]
    ) -> None:
        self.command(tmp_path, command, *ENROOT)
        words = self.refused(CONTAINERS[runtime](spec(tmp_path, runtime), PLAIN), *answers)
        assert words.startswith(f"{tmp_path}/{file} is not on this node any more: `fab environment.rm ")
        assert f"`fab environment.rm {tmp_path.name}` removes the environment from all nodes" in words

    @staticmethod
    def command(tmp_path: Path, *names: str) -> None:
        for name in names:
            (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
            (tmp_path / "bin" / name).chmod(0o755)

    def test_a_mount_that_dockers_daemon_cannot_enter(self, tmp_path: Path) -> None:
        self.command(tmp_path, "docker")
        node = replace(PLAIN, closed=("/mnt/nfs",))
        words = self.refused(docker.Docker(spec(tmp_path, "docker"), node))
        assert words.startswith("runtime = docker: Docker's daemon cannot enter the mount /mnt/nfs: mount it")
        assert "allow_other" in words

    @pytest.mark.parametrize("runtime", ["charliecloud", "enroot"])
    def test_a_mount_with_a_colon(self, tmp_path: Path, runtime: str) -> None:
        self.command(tmp_path, "ch-run", *ENROOT)
        node = replace(PLAIN, folders=("/home/azureuser", "/mnt/a:b"))
        words = self.refused(CONTAINERS[runtime](spec(tmp_path, runtime), node))
        assert words == (
            f"runtime = {runtime}: it cannot mount /mnt/a:b, with a colon in its name: mount it elsewhere"
        )

    def test_enroot_without_what_mounts_an_image(self, tmp_path: Path) -> None:
        self.command(tmp_path, "enroot", "squashfuse")
        words = self.refused(enroot.Enroot(spec(tmp_path, "enroot"), PLAIN))
        assert words.startswith("runtime = enroot: fuse-overlayfs: command not found")

    @pytest.mark.parametrize("value", ["two\nlines", '"in quotes"', "'in quotes' "])
    @pytest.mark.parametrize("place", ["image", "env", "user_env"])
    def test_a_variable_that_enroot_would_change(self, tmp_path: Path, place: str, value: str) -> None:
        self.command(tmp_path, *ENROOT)
        given = spec(tmp_path, "enroot")
        if place == "image":
            (tmp_path / "config.json").write_text(json.dumps({"Env": [f"MINE={value}"]}))
        else:
            given[place] = {"MINE": value}
        words = self.refused(enroot.Enroot(given, PLAIN))
        assert words.startswith(
            "runtime = enroot: environment variable MINE: enroot changes values of several"
        )

    def test_docker_that_does_not_answer(self, tmp_path: Path) -> None:
        self.command(tmp_path, "docker")
        answer = (1, b"\nCannot connect to the Docker daemon at unix:///var/run/docker.sock.\n")
        words = self.refused(docker.Docker(spec(tmp_path, "docker"), PLAIN), answer)
        assert words.startswith("runtime = docker: Cannot connect to the Docker daemon at unix:///var/run/")
        assert "usermod -aG docker" in words

    def test_an_archive_that_docker_does_not_load(self, tmp_path: Path) -> None:
        self.command(tmp_path, "docker")
        (tmp_path / "image.tar").write_text("torn")
        printed = b"Loading layer\nwrite /var/lib/docker/tmp/layer.tar: no space left on device\n"
        answers = ((0, b"20.10"), (1, b"no such image"), (0, b""), (1, printed))
        words = self.refused(docker.Docker(spec(tmp_path, "docker"), PLAIN), *answers)
        assert words == f"docker load of {tmp_path}/image.tar: {printed.decode().splitlines()[1]}"

    def test_a_kernel_that_lets_charliecloud_start_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "root").mkdir()
        self.command(tmp_path, "ch-run")
        line = "ch-run: error: cannot init user+mount namespaces: Operation not permitted"
        (tmp_path / "bin/ch-run").write_text(f"#!/bin/sh\necho '{line}' >&2; exit 1\n")
        words = self.refused(charliecloud.Charliecloud(spec(tmp_path), PLAIN))
        assert words == f"ch-run cannot start a container: {line}"

    def test_gpus_without_nvidias_toolkit(self, tmp_path: Path) -> None:
        self.command(tmp_path, "docker")
        words = self.refused(docker.Docker(spec(tmp_path, "docker"), replace(HPC, has_nvidia_toolkit=False)))
        assert words == (
            "runtime = docker: containers cannot use this node's GPUs; install nvidia-container-toolkit"
        )

    def test_gpus_that_charliecloud_cannot_give_a_rank(self, tmp_path: Path) -> None:
        self.command(tmp_path, "ch-run")
        words = self.refused(charliecloud.Charliecloud(spec(tmp_path), HPC))
        assert words.endswith("the libraries of this node's GPU driver into an image; use --runtime docker")

    def test_variables_by_which_enroot_gives_ranks_devices(self, tmp_path: Path) -> None:
        plain = enroot.Enroot(spec(tmp_path, "enroot"), PLAIN).inherited({"A": "node"})
        assert plain["OMPI_MCA_btl_vader_single_copy_mechanism"] == "none"
        hpc = enroot.Enroot(spec(tmp_path, "enroot"), HPC).inherited({"A": "node"})
        assert sorted(hpc.keys() - plain.keys()) == [
            *("MELLANOX_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_VISIBLE_DEVICES"),
        ]

    def test_a_shell_function_of_the_node_is_not_given_to_enroot(self, tmp_path: Path) -> None:
        env = {"RANK": "0", "BASH_FUNC_module%%": "() { :\n}"}
        argv = enroot.enroot_argv("enroot", "/image.sqsh", "/job/rc", env, CWD, PLAIN, RANK)
        assert [argv[place + 1] for place, word in enumerate(argv) if word == "--env"] == ["RANK"]

    def test_enroot_starts_no_login_shell_that_would_set_path_again(self, tmp_path: Path) -> None:
        self.command(tmp_path, *ENROOT)
        (tmp_path / "image.sqsh").touch()
        made = enroot.Enroot(spec(tmp_path, "enroot"), PLAIN)
        made.ready(lambda _argv, _limit: (0, b""), lambda _wait: None)
        argv, env = made.command(RANK, {"RANK": "0"}, CWD, 0)
        assert env == {"RANK": "0", "ENROOT_LOGIN_SHELL": "no"}
        assert "ENROOT_LOGIN_SHELL" not in argv

    def test_only_charliecloud_passes_on_the_descriptor_by_which_mpich_reaches_its_launcher(self) -> None:
        assert [name for name, kind in CONTAINERS.items() if kind.passes_descriptors] == ["charliecloud"]

    def test_what_mounts_an_image_for_enroot_does_not_get_the_ranks_sigterm(self, tmp_path: Path) -> None:
        made = enroot.Enroot(spec(tmp_path, "enroot"), PLAIN)
        mount = ["/bin/bash", "-c", "exec -a /usr/bin/squashfuse /bin/sleep 60"]
        with subprocess.Popen(mount) as mounter, subprocess.Popen(["/bin/sleep", "60"]) as other:
            try:
                until = time.monotonic() + 10
                while made.spared() != {mounter.pid}:
                    assert time.monotonic() < until
                    time.sleep(0.01)
                assert {mounter.pid, other.pid} <= set(made.list_processes())
            finally:
                mounter.kill()
                other.kill()

    def test_a_variable_that_would_redirect_docker(self, tmp_path: Path) -> None:
        self.command(tmp_path, "docker")
        made: Any = {**spec(tmp_path, "docker"), "user_env": {"DOCKER_HOST": "tcp://other"}}
        words = self.refused(docker.Docker(made, PLAIN))
        assert (
            words == "environment variable DOCKER_HOST would redirect the docker that starts ranks: unset it"
        )


def test_docker_drops_images_of_environments_that_the_node_has_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/docker").write_text("#!/bin/sh\n")
    (tmp_path / "bin/docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("0f", "0e"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "image.tar").touch()
    ran = []

    def run(argv: list[str], _limit: float) -> tuple[int, bytes]:
        ran.append(argv[1:])
        if argv[1:3] == ["image", "ls"]:
            return 0, b"ranklift/0d\nranklift/0e\n"
        return int(argv[1:3] == ["image", "inspect"]), b""

    docker.Docker(spec(tmp_path / "0f", "docker"), PLAIN).ready(run, lambda _wait: None)
    assert [argv for argv in ran if "rm" in argv] == [["image", "rm", "ranklift/0d"]]
    assert ran[-1] == ["load", "--quiet", "--input", f"{tmp_path}/0f/image.tar"]


def test_a_bare_ranks_runner_imports_no_runtime() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(Path.cwd())!r})\n"
         "import launch.remote.node.runner\nprint([name for name in sys.modules if 'runtimes' in name])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"


def test_a_bare_plan_names_the_nodes_themselves() -> None:
    assert (BARE["runtime"], BARE["path"]) == ("bare", "")
