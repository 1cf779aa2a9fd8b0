"""Which Debian packages are asked for, and what their installation leaves of its own: nothing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

DEBIAN = Path(__file__).parents[2] / "tools" / "debian"
ORDINARY = ("bash", "env", "sed", "sort", "tr", "dpkg-query", "grep", "mktemp", "chmod", "rm", "id", "flock")
STATUS = """\
Package: {package}
Status: install ok {state}
Architecture: all
Version: 1
Maintainer: nobody <nobody@invalid>
Description: a package

"""


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """The folder that is all of PATH: the ordinary commands, and what a test puts there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ORDINARY:
        (folder / name).symlink_to(shutil.which(name) or "")
    return folder


def command(folder: Path, name: str, script: str = "") -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def packages(folder: Path, **states: str) -> None:
    """Lets dpkg's records, in ``folder``, say in which state these packages are."""
    (folder / "updates").mkdir(parents=True)
    (folder / "info").mkdir()
    (folder / "status").write_text(
        "".join(STATUS.format(package=name, state=state) for name, state in states.items())
    )


def missing(commands: Path, *options: str) -> set[str]:
    env = {"PATH": str(commands), "DPKG_ADMINDIR": str(commands.parent / "dpkg")}
    if not (commands.parent / "dpkg").exists():
        packages(commands.parent / "dpkg")
    done = subprocess.run(
        [DEBIAN, "missing", *options], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_the_mpi_that_is_compiled_against_needs_its_header_not_only_its_compiler(
    commands: Path, tmp_path: Path
) -> None:
    include = tmp_path / "mpi" / "include"
    command(commands, "mpicxx", f"[ \"$1\" = --showme:incdirs ] && echo '{tmp_path / 'no'} {include}'")
    assert "libopenmpi-dev" in missing(commands, "--frameworks")
    include.mkdir(parents=True)
    (include / "mpi.h").touch()
    assert "libopenmpi-dev" not in missing(commands, "--frameworks")


def test_a_compiler_of_an_mpi_that_horovod_is_not_built_with_is_not_enough(commands: Path) -> None:
    command(commands, "mpicxx", "echo 'Unknown option' >&2; exit 1")
    assert "libopenmpi-dev" in missing(commands, "--frameworks")


def test_a_command_that_is_there_needs_no_package(commands: Path) -> None:
    assert "rsync" in missing(commands)
    command(commands, "rsync")
    assert "rsync" not in missing(commands)


@pytest.mark.parametrize("state", ["unpacked", "half-configured", "half-installed"])
def test_a_package_whose_installation_was_interrupted_is_missing(commands: Path, state: str) -> None:
    command(commands, "rsync")
    packages(commands.parent / "dpkg", rsync=state, git="installed")
    assert "rsync" in missing(commands)


@pytest.mark.parametrize("state", ["installed", "config-files"])
def test_what_is_installed_or_removed_is_not_half_installed(commands: Path, state: str) -> None:
    command(commands, "rsync")
    packages(commands.parent / "dpkg", rsync=state)
    assert "rsync" not in missing(commands)


def install(commands: Path, tmp_path: Path, sees: Path, package: str = "rsync") -> str:
    """Install a package with an apt-get that copies policy-rc.d to ``sees``; return what stays of it.

    Folders ``systemd`` of ``tmp_path`` lie over the machine's own units, those in use and those installed.
    """
    for name in ("apt-get", "dpkg"):
        command(commands, name, f'while read -r line; do echo "$line"; done </usr/sbin/policy-rc.d >{sees}')
    sbin = tmp_path / "sbin"
    places = {"used": "/etc/systemd/system", "installed": "/lib/systemd/system"}
    binds = [f"/bin/mount --bind {sbin} /usr/sbin"]
    for name, place in places.items():
        (tmp_path / "systemd" / name).mkdir(parents=True, exist_ok=True)
        binds += [f"/bin/mount --bind {tmp_path / 'systemd' / name} {place}"] if Path(place).is_dir() else []
    inside = " && ".join([*binds, f"PATH={commands} exec {DEBIAN} install {package}"])
    alone = ["unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", inside]
    done = subprocess.run(alone, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    policy = sbin / "policy-rc.d"
    return policy.read_text() if policy.exists() else ""


def test_no_service_starts_while_packages_are_installed_and_afterwards_they_may(
    commands: Path, tmp_path: Path
) -> None:
    (tmp_path / "sbin").mkdir()
    assert install(commands, tmp_path, tmp_path / "seen") == ""
    assert (tmp_path / "seen").read_text().splitlines()[-1] == "exit 101"


def test_a_service_that_a_package_brings_stays_off_and_one_that_is_there_stays_as_it_is(
    commands: Path, tmp_path: Path
) -> None:
    command(commands, "ln", 'exec /bin/ln "$@"')
    (tmp_path / "sbin").mkdir()
    (tmp_path / "systemd/installed").mkdir(parents=True)
    (tmp_path / "systemd/installed/docker.service").touch()
    for package in ("docker-registry", "docker.io", "prometheus"):
        install(commands, tmp_path, tmp_path / "seen", package)
    masked = {path.name: str(path.readlink()) for path in (tmp_path / "systemd/used").iterdir()}
    assert masked == dict.fromkeys(
        ("docker-registry.service", "docker.socket", "containerd.service", "prometheus.service"), "/dev/null"
    )


def test_what_a_killed_installation_left_is_removed_by_the_next(commands: Path, tmp_path: Path) -> None:
    (tmp_path / "sbin").mkdir()
    install(commands, tmp_path, tmp_path / "seen")
    shutil.copy(tmp_path / "seen", tmp_path / "sbin/policy-rc.d")
    assert install(commands, tmp_path, tmp_path / "seen") == ""


def test_a_policy_of_the_machines_own_stays(commands: Path, tmp_path: Path) -> None:
    (tmp_path / "sbin").mkdir()
    (tmp_path / "sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
    assert install(commands, tmp_path, tmp_path / "seen") == "#!/bin/sh\nexit 101\n"
