"""One bare Debian for all set-ups: git, make and python3 are in it, and the checkout's committed state."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bare_root import BareRoot, make_archive, missing_here, open_root
from tests.setup.machine import environment, host_files

ROOT = Path(__file__).parents[2]
INCLUDED = "git,make,python3"
ARCHIVE_S = 600
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Debian with nothing but git, make and python3, packed."""
    if why := missing_here():
        pytest.fail(why)
    folder = tmp_path_factory.mktemp("archive")
    made = folder / "root.tar"
    make_archive(made, include=INCLUDED, temporary=folder / "tmp", limit_s=ARCHIVE_S)
    yield made
    made.unlink()


@pytest.fixture(scope="session")
def debian(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareRoot]:
    """The same unpacked, with the checkout in ``/ranklift``; nothing of it stays."""
    folder = tmp_path_factory.mktemp("setup")
    checkout, added = folder / "checkout", folder / "added.tar"
    subprocess.run(["git", "clone", "--quiet", "--no-local", ROOT, checkout], check=True, timeout=120)
    with tarfile.open(added, "w") as tar:
        for inside, path in {"ranklift": checkout, **host_files()}.items():
            tar.add(path.resolve(), inside, filter=of_root)
    # mmdebstrap lays a policy-rc.d of its own there, which no Debian has.
    hooks = ["rm -rf $1/etc/apt $1/usr/sbin/policy-rc.d", f"tar-in {added} /"]
    env = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", **environment()}
    with open_root(archive, hooks, temporary=folder / "tmp", env=env) as root:
        yield root
    added.unlink()
    assert list((folder / "tmp").iterdir()) == []


def of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry
