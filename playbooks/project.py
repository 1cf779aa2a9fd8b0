"""Which project folder, which stack, and what Pulumi and Azure are asked about them.

The project folder is the checkout with ``Pulumi.yaml``; ``.ranklift/`` lies in it. It is found through
``ns.configure({"ranklift": {"project": …}})`` in the fabfile, else ``RANKLIFT_PROJECT``, else the folders
above the current one. The stack is ``--stack``, else ``RANKLIFT_STACK``, else the one ``pulumi stack select``
chose.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra import inventory
from launch.errors import InputError, MissingTool, RankliftError, StepTimeout

__all__ = ["PulumiError", "Stack", "find_project", "is_project", "open_stack", "pulumi_program"]

PULUMI_QUESTION_S = 60.0
"""How long a question to Pulumi (not an update) may take."""
_PART = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_NAME = re.compile(rf"{_PART}(?:/{_PART}){{0,2}}")


class PulumiError(RankliftError):
    """Pulumi said no; the text is its own."""


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack of one project, and the environment in which its commands run."""

    name: str
    project: Path
    environment: Mapping[str, str]
    """All of it: this process's, and the rehearsal's on top when the stack is rehearsed."""

    @property
    def folder(self) -> Path:
        """Where its inventory and keys are: ``.ranklift/<stack>/``."""
        return self.project / ".ranklift" / self.name.rpartition("/")[2]

    @property
    def lock_note(self) -> Path:
        """Where it is noted which lock of Pulumi's a command here has."""
        return self.folder / "lock.json"

    def saved(self) -> inventory.Inventory:
        """The nodes as they were last saved; asks nobody.

        Raises :class:`~launch.errors.InputError` when none are saved.
        """
        if not (self.folder / inventory.INVENTORY_FILE).exists():
            raise InputError("stack", self.name, "no inventory is saved for it", self._remedy())
        return inventory.load(self.folder)

    def scratch(self) -> AbstractContextManager[Path]:
        """A folder for one command's own files, which goes with it, or with the next one if it is killed."""
        from playbooks.pulumi.scratch import scratch

        return scratch(self.project)

    @property
    def configuration(self) -> Path:
        """The file that says what the stack is to be."""
        return self.project / f"Pulumi.{self.name.rpartition('/')[2]}.yaml"

    def settings(self) -> dict[str, Any]:
        """The stack's configuration as its file has it, by keys like ``ranklift:nodeCount``.

        Raises :class:`~launch.errors.InputError` when there is no such file, or it is no configuration.
        """
        import yaml

        try:
            found = yaml.safe_load(self.configuration.read_text())
        except FileNotFoundError:
            # Pulumi would make the stack all the same, and a file for it that holds nothing but a salt.
            raise InputError(
                "stack",
                self.name,
                f"it has no {self.configuration.name} in {self.project}",
                "check the name, or write that file first: docs/azure.md says what goes into it",
            ) from None
        except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
            problem = f"is no YAML ({' '.join(str(error).split())})"
            raise InputError("configuration", str(self.configuration), problem, "mend it") from None
        settings = found.get("config") if isinstance(found, dict) else None
        return dict(settings) if isinstance(settings, dict) else {}

    def _remedy(self) -> str:
        """What to do about a stack that nothing is known of: a misspelt name is likelier than a new stack."""
        if self.configuration.exists():
            return f"run `fab up --stack {self.name}`, or `fab status --stack {self.name}` if it is up"
        saved = sorted(
            path.parent.name for path in self.project.glob(f".ranklift/*/{inventory.INVENTORY_FILE}")
        )
        known = f"known here: {', '.join(saved)}; " if saved else ""
        return f"{known}see `pulumi stack ls`"

    @property
    def hashes(self) -> Path:
        """Where a push of code remembers what it has hashed."""
        return self.folder / "hashes.json"

    def hashes_of(self, data: Path) -> Path:
        """The same for one job's input, which may be large and stays as it is for long."""
        digest = hashlib.sha256(os.fsencode(data.absolute())).hexdigest()[:12]
        return self.folder / f"hashes-{digest}.json"

    def key_numbers(self) -> frozenset[bytes]:
        """Return the numbers of the private key of every stack of the project, by which a copy is known."""
        from launch.code.private_keys import key_numbers

        keys = self.folder.parent.glob(f"*/{inventory.KEY_FILE}")
        return frozenset().union(*(key_numbers(key.read_bytes()) for key in keys if key.is_file()))

    @property
    def jobs(self) -> Path:
        """Where it is noted which node has which job."""
        return self.folder / "jobs"

    def forget(self) -> None:
        """Removes all that is kept of the stack here, keys included; what others put beside it stays."""
        shutil.rmtree(self.jobs, ignore_errors=True)
        self.lock_note.unlink(missing_ok=True)
        for remembered in self.folder.glob("hashes*.json"):
            remembered.unlink(missing_ok=True)
        inventory.remove(self.folder)

    def exists(self) -> bool:
        """Whether Pulumi knows the stack."""
        return any(self.name in (name, name.rpartition("/")[2]) for name in self.siblings())

    def siblings(self) -> list[str]:
        """Names of all stacks of the project that Pulumi knows where it is logged in, as it spells them."""
        answer = _ask(["stack", "ls", "--json"], self.project, self.environment)
        return [str(entry["name"]) for entry in json.loads(answer)]

    def outputs(self) -> inventory.StackOutputs:
        """What the stack exports, secrets in the clear.

        Raises :class:`~launch.errors.InputError` when there is no such stack or it is not up,
        :class:`~launch.errors.MissingTool` without Pulumi, :class:`PulumiError` with Pulumi's own words.
        """
        return inventory.StackOutputs.from_json(self._asked("output", "--json", "--show-secrets"))

    def _asked(self, *arguments: str) -> Any:
        try:
            answer = _ask(["stack", *arguments, "--stack", self.name], self.project, self.environment)
        except PulumiError as error:
            if "no stack named" in str(error):
                raise InputError("stack", self.name, "Pulumi has none of that name", self._remedy()) from None
            raise
        return json.loads(answer)

    def refresh(self, outputs: inventory.StackOutputs) -> inventory.Inventory:
        """Asks Azure which nodes there are now, and saves that; raises RankliftError in Azure's words."""
        from azure.core.exceptions import AzureError

        from infra.arm import clients as azure

        subscription = outputs.scale_set_id.strip("/").split("/")[1]
        clients = azure.clients(subscription, self.environment)
        try:
            found = inventory.read_azure(outputs, clients)
        except AzureError as error:
            from infra.arm.update_errors import AzureFailed
            from playbooks.pulumi.drift import tell_end

            failed = AzureFailed(f"Azure did not say what stack {self.name} has", self.name, error)
            tell_end(self, failed)
            raise failed from error
        inventory.save(found, outputs, self.folder)
        return found

    def state(self) -> Any:
        """What Pulumi remembers of it: the deployment, secrets encrypted. Raises as :meth:`outputs`."""
        return self._asked("export")


def find_project(configured: str | None, fabfile_folder: Path | None) -> Path:
    """The project folder.

    Raises :class:`~launch.errors.InputError` when none is found or the one named has no Pulumi.yaml.
    """
    if configured:
        folder = (fabfile_folder or Path.cwd()) / Path(configured).expanduser()
        return _checked("ranklift.project", configured, folder)
    named = os.environ.get("RANKLIFT_PROJECT")
    if named:
        return _checked("RANKLIFT_PROJECT", named, Path(named).expanduser())
    here = Path.cwd()
    for folder in (here, *here.parents):
        if is_project(folder):
            return folder
    raise InputError(
        "project",
        str(here),
        "no Ranklift project here or above",
        'set RANKLIFT_PROJECT, or ns.configure({"ranklift": {"project": "…"}}) in the fabfile',
    )


def is_project(folder: Path) -> bool:
    """Whether ``folder`` is a checkout of the Pulumi project."""
    try:
        text = (folder / "Pulumi.yaml").read_text()
    except OSError:
        return False
    return re.search(r"^name:\s*[\"']?ranklift[\"']?\s*$", text, re.MULTILINE) is not None


def open_stack(project: Path, flag: str | None) -> Stack:
    """The stack to work on.

    A name that is ``rehearsal`` or begins with ``rehearsal-`` belongs to the rehearsal and never to Azure.
    Raises :class:`~launch.errors.InputError` when no stack is chosen, the name cannot be one, or it is a
    rehearsed one and no rehearsal runs.
    """
    own = dict(os.environ)
    name = flag or os.environ.get("RANKLIFT_STACK") or _selected(project, own)
    if name is None:
        try:
            rehearsed = own | _rehearsal(project)
        except InputError:
            rehearsed = own
        name = _selected(project, rehearsed)
        if name is None:
            remedy = "give --stack NAME, set RANKLIFT_STACK or `pulumi stack select`"
            raise InputError("--stack", None, "no stack is chosen", remedy)
    if _NAME.fullmatch(name) is None:
        raise InputError("--stack", name, "is no name of a stack", "see `pulumi stack ls`")
    last = name.rpartition("/")[2]
    if last == "rehearsal" or last.startswith("rehearsal-"):
        return Stack(name, project, own | _rehearsal(project))
    return Stack(name, project, own)


def _rehearsal(project: Path) -> dict[str, str]:
    from rehearsal.run_dir import Folder

    return Folder(project).environment()


def _selected(project: Path, environment: Mapping[str, str]) -> str | None:
    """What ``pulumi stack select`` chose.

    Pulumi's own note of it is read first: asking the command calls the backend, which a dry run must not,
    and costs every command a tenth of a second.
    """
    home = Path(environment.get("PULUMI_HOME") or Path.home() / ".pulumi")
    digest = hashlib.sha1(str(project / "Pulumi.yaml").encode(), usedforsecurity=False).hexdigest()
    note = home / "workspaces" / f"ranklift-{digest}-workspace.json"
    try:
        chosen = json.loads(note.read_text()).get("stack")
    except (OSError, ValueError):
        chosen = None
    if chosen:
        return str(chosen).removeprefix("organization/ranklift/")
    try:
        return _ask(["stack", "--show-name"], project, environment).strip() or None
    except (PulumiError, MissingTool):
        return None


def _checked(key: str, value: str, folder: Path) -> Path:
    folder = folder.resolve()
    if not is_project(folder):
        problem = f"{folder} has no Pulumi.yaml of Ranklift's"
        raise InputError(key, value, problem, "name the checkout of Ranklift")
    return folder


def pulumi_program(environment: Mapping[str, str]) -> str:
    """Where Pulumi is; raises :class:`~launch.errors.MissingTool` when it is nowhere on PATH."""
    found = shutil.which("pulumi", path=environment.get("PATH"))
    if found is None:
        raise MissingTool("pulumi", "put it on PATH, or run `make setup` in the project")
    return found


def _ask(arguments: list[str], project: Path, environment: Mapping[str, str]) -> str:
    command = [pulumi_program(environment), *arguments, "--non-interactive"]
    try:
        answer = subprocess.run(
            command,
            cwd=project,
            env={**environment, "PULUMI_SKIP_UPDATE_CHECK": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PULUMI_QUESTION_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StepTimeout("pulumi", " ".join(arguments[:2]), PULUMI_QUESTION_S) from None
    if answer.returncode != 0:
        text = answer.stderr.strip() or answer.stdout.strip()
        raise PulumiError(f"pulumi {' '.join(arguments[:2])}: {text.removeprefix('error: ')}")
    return answer.stdout
