"""A Debian root with nothing in it but what is named: made by mmdebstrap, used once, gone afterwards.

Root needs nothing for it; anyone else needs newuidmap and a range of ids in /etc/subuid. The mounts live in a
namespace of their own, and the root lies in a temporary folder: mmdebstrap removes both when it ends, also
when the process that started it is killed.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "BareRoot",
    "Ran",
    "make_archive",
    "missing_here",
    "mmdebstrap",
    "open_root",
    "run",
    "sources",
    "unpack",
]

SUITE = "bookworm"
SOURCES = (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d/debian.sources"))
"""Where Debian's installers write which mirrors a machine uses."""
END_S = 900
"""Seconds that mmdebstrap has to remove what it made, once it is to end: 28 GB, on a busy machine."""
ANSWER = "bare-root-answer:"
KEEP = """\
trap 'trap "" TERM; kill -TERM 0' TERM
"$@" <&0 &
wait "$!"; status=$?
wait; exit "$status"
"""
"""Passes a SIGTERM on to all of its session: mmdebstrap alone would wait for its hooks before it removes
the root."""
ALONE = ("--mount", "--propagation=private", "--pid", "--fork", "--kill-child")
ENTER = """\
set -e
cd "$1"; shift
for device in net/tun fuse; do
    [ -e "/dev/$device" ] || continue
    mkdir -p "dev/net" && touch "dev/$device" && mount --bind "/dev/$device" "dev/$device"
done
mount -t proc proc proc
mount --rbind . . && cd "$PWD"
pivot_root . mnt
umount --lazy /mnt
env --ignore-environment "$@"
exit "$?"
"""
"""Enters a root as a system does that has booted it: who lives in a chroot may make no user namespaces, and
without a first process of its own, which bash is, nobody takes note of the orphans that have ended."""
SERVE = f"""\
import json, subprocess, sys
for line in sys.stdin:
    asked = json.loads(line)
    ran = subprocess.run(asked["argv"], cwd=asked["cwd"], env=asked["env"], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print("{ANSWER}" + json.dumps([ran.returncode, ran.stdout.decode(errors="replace")]), flush=True)
"""
"""Runs in the root: a command in a line of stdin, its exit status and output in a line, which mmdebstrap
passes on to its stderr."""


def missing_here() -> str:
    """Return why no root can be made on this machine; nothing where one can."""
    if shutil.which("mmdebstrap") is None:
        return "mmdebstrap is not installed: make azurite installs it"
    if os.geteuid() != 0 and shutil.which("newuidmap") is None:
        return "needs root or newuidmap (of Debian's package uidmap)"
    return ""


def mmdebstrap(arguments: Sequence[str], *, temporary: Path) -> list[str]:
    """Return the command line of an mmdebstrap that works in ``temporary`` and ends when its starter does.

    The starter has to give it a session of its own. The namespace of a user other than root cannot enter a
    folder that is the user's alone: such a root lies in the system's temporary folder.
    """
    place = temporary if os.geteuid() == 0 else tempfile.gettempdir()
    return [
        *("setpriv", "--pdeathsig", "TERM", "bash", "-c", KEEP, "bash", "env", f"TMPDIR={place}"),
        *("mmdebstrap", "--mode=unshare", "--quiet", *arguments),
    ]


def sources(suite: str) -> dict[str, str]:
    """Return the files by which apt reaches this machine's mirrors, for another release of Debian."""
    mine = platform.freedesktop_os_release()["VERSION_CODENAME"]
    return {
        str(path).lstrip("/"): re.sub(rf"\b{mine}\b", suite, path.read_text())
        for path in SOURCES
        if path.exists()
    }


def make_archive(archive: Path, *, include: str, temporary: Path, limit_s: float, suite: str = SUITE) -> None:
    """Write a root with the packages ``include`` to ``archive``, from the mirrors that apt uses here."""
    temporary.mkdir(parents=True, exist_ok=True)
    command = ["--variant=minbase", f"--include={include}"]
    command += [f"--dpkgopt=path-exclude=/usr/share/{which}/*" for which in ("doc", "locale", "man")]
    command += ["--dpkgopt=force-unsafe-io", "--aptopt=Acquire::Languages none"]
    command += ["--aptopt=Acquire::Retries 3", suite, "-"]
    with tempfile.TemporaryDirectory() as folder:
        for inside, text in sources(suite).items():
            mirrors = Path(folder, Path(inside).name)
            mirrors.write_text(text)
            command.append(str(mirrors))
        # Without /dev: every copy gets its own.
        packed = (
            f"{shlex.join(mmdebstrap(command, temporary=temporary))} | mmtarfilter '--path-exclude=/dev/*'"
        )
        ran = run(["bash", "-c", f"set -o pipefail; {packed} >{shlex.quote(str(archive))}"], limit_s=limit_s)
    assert ran.returncode == 0, ran.stderr


def unpack(archive: Path, hooks: Sequence[str], *, temporary: Path) -> list[str]:
    """Return the command that unpacks ``archive``, runs ``hooks`` (``$1`` is the root) and removes it."""
    temporary.mkdir(parents=True, exist_ok=True)
    arguments = ["--variant=custom", "--skip=update,cleanup,setup", f"--setup-hook=tar-in {archive} /"]
    arguments += [f"--customize-hook={hook}" for hook in hooks]
    return mmdebstrap([*arguments, "--format=null", "-", "-"], temporary=temporary)


def run(command: Sequence[str], *, limit_s: float) -> subprocess.CompletedProcess[str]:
    """Run ``command``; one that takes longer is ended in a way that lets it remove what it has made."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=limit_s)
        except BaseException:
            process.terminate()
            process.wait(END_S)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended in a root."""

    command: str
    status: int
    out: str
    """What it wrote to either stream."""

    def __str__(self) -> str:
        return f"$ {self.command}\n{self.out[-6000:]}\n-- exit status {self.status}"


class BareRoot:
    """A root that stays while several commands run in it."""

    def __init__(self, process: subprocess.Popen[str], env: dict[str, str]) -> None:
        self._process, self._env = process, env

    def run(self, command: str, *, cwd: str = "/") -> Ran:
        """Run a bash command as the root's root user, with the root's environment and nothing else."""
        assert self._process.stdin is not None and self._process.stderr is not None
        request = {"argv": ["bash", "-c", command], "cwd": cwd, "env": self._env}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        printed: list[str] = []
        for line in self._process.stderr:
            if line.startswith(ANSWER):
                status, out = json.loads(line.removeprefix(ANSWER))
                return Ran(command, status, out)
            printed.append(line)
        raise AssertionError(f"mmdebstrap ended while this ran: {command}\n{''.join(printed)}")


@contextmanager
def open_root(
    archive: Path, hooks: Sequence[str], *, temporary: Path, env: dict[str, str]
) -> Iterator[BareRoot]:
    """Unpack ``archive``, which needs to hold python3, and run ``hooks``; remove the root at the end."""
    serve = shlex.join(["unshare", *ALONE, "bash", "-c", ENTER, "bash"])
    serve += f' "$1" /usr/bin/python3 -c {shlex.quote(SERVE)}'
    command = unpack(archive, [*hooks, serve], temporary=temporary)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield BareRoot(process, env)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(END_S)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(END_S)
    assert process.returncode == 0, f"mmdebstrap ended with {process.returncode}"
