"""What an operator has before anything runs: a project folder, and a repository of their own beside it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rehearsal.run_dir import Folder, Record
from tools.leftovers import Belongings, belongings, still_there

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
NODE_PYTHON = ROOT / ".venv-node"
LIMIT_S = 600.0
"""How long anything may take before the test gives up: the machine may be doing much else."""
NOTHING = Belongings([], [], [], [])

FABFILE = """\
from playbooks import ns

ns.configure({"ranklift": {"project": "../ranklift"}})
"""
SETTINGS = {
    "vmSize": "Standard_ND40rs_v2",
    "nodeCount": "2",
    "location": "southcentralus",
    "sshFrom": "127.0.0.1/32",
}


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended."""

    command: str
    status: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def __str__(self) -> str:
        return f"$ {self.command}\n{self.out}\n-- stderr --\n{self.err}\n-- exit status {self.status}"


class Workplace:
    """A project folder, an operator's repository, and what both are used with."""

    def __init__(self, top: Path) -> None:
        self.project, self.own, self.temporary = top / "ranklift", top / "own", top / "tmp"
        self._before: Belongings | None = None
        for folder in (self.project, self.own, self.temporary):
            folder.mkdir()
        shutil.copy(ROOT / "Pulumi.yaml", self.project)
        (self.project / "infra").symlink_to(ROOT / "infra")
        (self.own / "fabfile.py").write_text(FABFILE)
        (self.own / ".gitignore").write_text("*.bin\n/outputs\n")
        (self.own / ".ranklift-ignore").write_text("notes/\n")
        subprocess.run(["git", "init", "-q", self.own], check=True)

    # -- commands -----------------------------------------------------------------------------------------

    @property
    def environment(self) -> dict[str, str]:
        """The operator's: the project installed, temporary files where they are seen."""
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(paths),
            "TMPDIR": str(self.temporary),
            "RANKLIFT_STACK": "rehearsal",
        }

    def fab(self, *words: str, status: int | None = 0) -> Ran:
        """A task in the operator's repository; ``status`` is what it has to end with, None for anything."""
        return self._run(["fab", *words], self.own, status)

    def run(self, *argv: str, status: int | None = 0) -> Ran:
        """A command in the operator's repository."""
        return self._run([*argv], self.own, status)

    def run_v1(self, script: Path, status: int | None = 0) -> Ran:
        """A script of the operator's for Azure ML's SDK v1, run in its folder."""
        return self._run(["ranklift", "run-v1", script.name], script.parent, status)

    def pulumi(self, *words: str, status: int | None = 0) -> Ran:
        """Pulumi as typed in the project folder after ``eval "$(fab rehearsal.env)"``."""
        script = 'exports=$(cd "$0" && fab rehearsal.env) && eval "$exports" && exec pulumi "$@"'
        return self._run(["bash", "-c", script, str(self.own), *words], self.project, status)

    def _run(self, argv: list[str], folder: Path, status: int | None) -> Ran:
        done = subprocess.run(
            argv,
            cwd=folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        ran = Ran(" ".join(argv), done.returncode, done.stdout, done.stderr)
        assert "Traceback (most recent call last)" not in ran.err, ran
        assert status is None or ran.status == status, ran
        return ran

    @contextmanager
    def begin(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A task in a process group of its own, as at a terminal, with all output in one pipe."""
        with subprocess.Popen(
            ["fab", *words],
            cwd=self.own,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    def configure(self, stack: str, **settings: str | int) -> None:
        """Writes the stack's configuration; what Pulumi has added to it stays."""
        path = self.project / f"Pulumi.{stack}.yaml"
        salt = re.findall(r"^encryptionsalt: .*$", path.read_text(), re.MULTILINE) if path.exists() else []
        lines = [f'  ranklift:{key}: "{value}"' for key, value in (SETTINGS | settings).items()]
        path.write_text("\n".join(["config:", *lines, *salt, ""]))

    # -- the rehearsal ------------------------------------------------------------------------------------

    @property
    def folder(self) -> Folder:
        return Folder(self.project.resolve())

    @property
    def record(self) -> Record:
        found = self.folder.record()
        assert found is not None
        return found

    def start(self, nodes_limit: int, node_python: Path | None = NODE_PYTHON) -> Ran:
        """Starts the rehearsal with torch and mpi4py on its nodes, or with bare nodes for None."""
        chosen = [] if node_python is None else ["--node-python", str(node_python)]
        return self.fab("rehearsal.start", "--nodes-limit", str(nodes_limit), *chosen)

    def azure(self, path: str = "") -> Any:
        """What the emulated subscription answers at ``path``."""
        return self.ask("GET", f"/subscriptions/{self.record.subscription_id}{path}")[0]

    def ask(
        self, method: str, path: str, body: Any = None, version: str = "2024-11-01"
    ) -> tuple[Any, Mapping[str, str]]:
        """Body and headers of the endpoint's answer to the operator, who may as well use the portal.

        ``path`` begins with ``/subscriptions``, or is an address that the endpoint gave.
        """
        base = f"http://127.0.0.1:{self.record.arm_port}"
        url = path if path.startswith(base) else f"{base}{path}?api-version={version}"
        token = json.loads(self.folder.record_file.read_text())["token"]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            text = answer.read()
            return (json.loads(text) if text else None), answer.headers

    def groups(self) -> set[str]:
        """Names of all resource groups there are."""
        return {group["name"] for group in self.azure("/resourcegroups")["value"]}

    def network(self, stack: str) -> dict[str, Any]:
        """What the rehearsal says of a stack's virtual network."""
        networks = self.fab("rehearsal.status", "--json").json()["networks"]
        (found,) = (its for name, its in networks.items() if f"/ranklift-{stack}/" in name)
        return dict(found)

    @contextmanager
    def held(self, stack: str) -> Iterator[Callable[[], None]]:
        """The stack's network stands still: whoever makes nodes waits until the function given is called."""
        inside = self.network(stack)["user_namespace"]
        stopped = [pid for pid in _pids() if _is_fabric(pid) and _namespace(pid) == inside]
        assert stopped, f"no network of {stack} runs"

        def go_on() -> None:
            while stopped:
                os.kill(stopped.pop(), signal.SIGCONT)

        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield go_on
        finally:
            go_on()

    def owned(self) -> Belongings:
        """What belongs to the rehearsal now."""
        return belongings(self.folder.root)

    def remains(self, before: Belongings, *, of: Path | None = None) -> Belongings:
        """What of ``before`` is still there after it had time to end."""
        deadline = time.monotonic() + LIMIT_S
        while (left := still_there(before, of or self.folder.root)) != NOTHING:
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        return left

    def close(self) -> None:
        """Stops the rehearsal, in whatever state it is, and sees to it that nothing of it is left."""
        before = self.owned()
        self.fab("rehearsal.stop")
        left = self.remains(before)
        assert left == NOTHING, asdict(left)
        names = {path.name for path in (self.project / ".ranklift").iterdir()}
        assert names == set()
        assert list(self.temporary.iterdir()) == []


@contextmanager
def rehearsed_workplace(
    top: Path, nodes_limit: int, node_python: Path | None = NODE_PYTHON
) -> Iterator[Workplace]:
    """A workplace below ``top`` with a running rehearsal; nothing of it is left in the end."""
    made = Workplace(top)
    try:
        made.start(nodes_limit, node_python)
        yield made
    finally:
        made.close()


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _is_fabric(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[1:3] == [b"-m", b"rehearsal.vms.netns"]


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/user").readlink())
    except OSError:
        return ""
