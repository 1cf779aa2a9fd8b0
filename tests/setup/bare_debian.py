"""A bare Debian with this checkout's committed state in ``/ranklift``; and ``make test`` in it.

    python -m tests.setup.bare_debian SUITE [PYTEST ARGUMENT...]

makes a root of the suite, e.g. trixie, runs ``make test`` there, prints its output at the end and removes the
root. The arguments are added to pytest's; a path limits the tests to it. Exit status: that of ``make test``.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bare_root import BareRoot, Ran, make_archive, missing_here, open_root, sources
from tests.setup.machine import environment, host_files

__all__ = ["bare_archive", "bare_debian", "make_test"]

ROOT = Path(__file__).parents[2]
INCLUDED = "git,make,python3"
ARCHIVE_S = 600
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def bare_archive(suite: str, folder: Path) -> Path:
    """Pack a Debian with git, make and python3 and nothing else; fail where none can be made."""
    assert not missing_here(), missing_here()
    made = folder / f"{suite}.tar"
    make_archive(made, include=INCLUDED, temporary=folder / "tmp", limit_s=ARCHIVE_S, suite=suite)
    return made


@contextmanager
def bare_debian(suite: str, archive: Path, folder: Path) -> Iterator[BareRoot]:
    """Unpack ``archive`` with the checkout in ``/ranklift``; nothing of it stays in ``folder``."""
    checkout, added, mirrors = folder / "checkout", folder / "added.tar", folder / "mirrors"
    subprocess.run(["git", "clone", "--quiet", "--no-local", ROOT, checkout], check=True, timeout=120)
    with tarfile.open(added, "w") as tar:
        for inside, path in {"ranklift": checkout, **host_files()}.items():
            tar.add(path.resolve(), inside, filter=of_root)
        for inside, text in sources(suite).items():
            mirrors.write_text(text)
            tar.add(mirrors, inside, filter=of_root)
    # mmdebstrap lays a policy-rc.d of its own there, which no Debian has.
    hooks = ["rm -rf $1/etc/apt/sources.list* $1/usr/sbin/policy-rc.d", f"tar-in {added} /"]
    env = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", **environment()}
    with open_root(archive, hooks, temporary=folder / "tmp", env=env) as root:
        yield root
    added.unlink()
    assert list((folder / "tmp").iterdir()) == []


def of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def make_test(root: BareRoot, arguments: Sequence[str]) -> Ran:
    """Run ``make test`` in the root, with further arguments for pytest."""
    return root.run(f"PYTEST_ADDOPTS={shlex.quote(shlex.join(arguments))} make test", cwd="/ranklift")


def main(suite: str, *arguments: str) -> int:
    """Run ``make test`` in a bare root of the suite; return its exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and remove all of it before
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with bare_debian(suite, bare_archive(suite, folder), folder) as root:
            ran = make_test(root, arguments)
            print(ran.out, flush=True)  # noqa: T201  before the root is removed, which may fail
    return ran.status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
