"""The project folder and its stacks: their files here, and what Pulumi knows of them.

The project folder has ``Pulumi.yaml``, the stacks' settings and ``.ranklift/``: a checkout, or one that
``fab init`` has made. It is found through
``ns.configure({"ranklift": {"project": …}})`` in the fabfile, else ``RANKLIFT_PROJECT``, else the folders
above the current one. The stack is ``--stack``, else ``RANKLIFT_STACK``, else Pulumi's own choice.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from infra import inventory
from launch.errors import InputError, MissingTool
from launch.project_folder import DISTRUSTED, is_project, is_trusted, project_around
from playbooks.pulumi_query import PulumiError, query
from playbooks.selection import noted_stack
from playbooks.settings_file import Setting, read_settings
from playbooks.unwritable import refuse_unwritable

__all__ = ["PULUMI_LOG", "PulumiError", "Stack", "find_project", "open_stack"]

PULUMI_LOG = "pulumi.log"
"""The file in a stack's folder of what Pulumi's commands printed."""
_UPDATES = 20
"""Number of updates in a history: the last that succeeded is among them."""
_SIGNED_OUT = "PULUMI_ACCESS_TOKEN must be set"
"""How Pulumi refuses a command without a terminal while it is signed in nowhere."""
_PART = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_NAME = re.compile(rf"{_PART}(?:/{_PART}){{0,2}}")


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack of one project, and the environment in which its commands run."""

    name: str
    project: Path
    environment: Mapping[str, str]
    """Every variable: this process's, and the rehearsal's on top when the stack is rehearsed."""
    shows_pulumi: bool = False
    """Whether all that Pulumi prints of an update is shown."""

    @property
    def short_name(self) -> str:
        """The name without organization and project."""
        return self.name.rpartition("/")[2]

    @property
    def is_rehearsed(self) -> bool:
        """Whether its nodes are rehearsed: its name says so."""
        return self.short_name == "rehearsal" or self.short_name.startswith("rehearsal-")

    @property
    def program(self) -> str:
        """The name of its Pulumi program."""
        return "ranklift"

    @property
    def pulumi_command(self) -> str:
        """The words that begin a command of plain Pulumi on its program."""
        is_here = self.project in (here := Path.cwd(), *here.parents)  # Pulumi looks in folders above, too
        return "pulumi" if is_here else f"pulumi -C {shlex.quote(str(self.project))}"

    @property
    def update_command(self) -> str:
        """The command that continues an update of it, after repairs where Pulumi was killed."""
        return f"fab up --stack {self.name}"

    @property
    def removal_command(self) -> str:
        """The command that removes all that it has in Azure."""
        return f"fab down --stack {self.name}"

    @property
    def folder(self) -> Path:
        """The folder of its inventory and keys: ``.ranklift/<stack>/``."""
        return self.project / ".ranklift" / self.short_name

    @property
    def lock_note(self) -> Path:
        """The file that names the lock of Pulumi's that a command here holds."""
        return self.folder / "lock.json"

    @property
    def last_check(self) -> Path:
        """The file of the last ``fab check``'s verdicts."""
        return self.folder / "check.json"

    @property
    def node_price(self) -> Path:
        """The file of the nodes' list price, as the last update found it."""
        return self.folder / "price.json"

    @property
    def metrics_token(self) -> Path:
        """The file of the token that ``fab metrics`` wants from who reads them."""
        return self.folder / "metrics-token"

    @property
    def check_lock(self) -> Path:
        """The file that ``fab check --deep`` locks while it measures."""
        return self.folder / "check.lock"

    def saved(self) -> inventory.Inventory:
        """Return the nodes as they were last saved, without any query.

        Raises :class:`~launch.errors.InputError` when none are saved.
        """
        if not (self.folder / inventory.INVENTORY_FILE).exists():
            raise InputError("stack", self.name, "has no saved inventory", self._remedy())
        return inventory.load(self.folder)

    def scratch(self) -> AbstractContextManager[Path]:
        """Return a folder for one command's files, removed at its end; refuse an unwritable stack."""
        refuse_unwritable(self.folder)
        from playbooks.pulumi.scratch import scratch

        return scratch(self.project)

    @property
    def configuration(self) -> Path:
        """The stack's configuration file."""
        return self.project / f"Pulumi.{self.short_name}.yaml"

    def settings(self) -> dict[str, Any]:
        """Return the values in the configuration file, and in the project's for all stacks, by keys like
        ``ranklift:nodeCount``.

        Raises :class:`~launch.errors.InputError` when the file does not exist or is not YAML.
        """
        return {key: one.value for key, one in self.placed_settings().items()}

    def placed_settings(self) -> dict[str, Setting]:
        """Return the settings with their files and lines. Raises as :meth:`settings`."""
        try:
            return read_settings(self.configuration)
        except FileNotFoundError:
            # Pulumi would create the stack, with a configuration file that holds nothing but a salt.
            raise InputError(
                "stack",
                self.name,
                f"has no {self.configuration.name} in {self.project}",
                f"{self.meant}check the name, or `fab config set` the settings that docs/azure.md lists",
            ) from None

    def _remedy(self) -> str:
        """Return the remedy for an unknown stack: a misspelt name is likelier than a new stack."""
        if self.configuration.exists():
            # After `pulumi stack rename` it is up, and an update would make all of it anew.
            return f"run `fab status --stack {self.name}` if it is up, else `fab up --stack {self.name}`"
        known = ", ".join(sorted(self._saved_stacks() - {self.short_name}))
        return f"{self.meant}{f'known here: {known}; ' if known else ''}see `pulumi stack ls`"

    def _saved_stacks(self) -> set[str]:
        return {path.parent.name for path in self.project.glob(f".ranklift/*/{inventory.INVENTORY_FILE}")}

    @property
    def meant(self) -> str:
        """A question whether another stack of the project was meant, for errors; else empty."""
        known = {path.name[len("Pulumi.") : -len(".yaml")] for path in self.project.glob("Pulumi.*.yaml")}
        known = {*known, *self._saved_stacks()} - {self.short_name}
        close = difflib.get_close_matches(self.short_name, sorted(known), n=1)
        return f"did you mean {close[0]}? else " if close else ""

    def hashes_of(self, source: Path) -> Path:
        """Return the cache of file hashes for one source of pushes, a folder or a file."""
        return self.folder / f"hashes-{_digest_of(source)}.json"

    def last_push_of(self, source: Path) -> Path:
        """Return the record of the last push of a source."""
        return self.folder / f"push-{_digest_of(source)}.json"

    @property
    def jobs(self) -> Path:
        """The folder of notes on which node keeps which job."""
        return self.folder / "jobs"

    def forget(self) -> None:
        """Remove the stack's files here, keys included; other files in its folder stay."""
        for notes in (self.jobs, self.folder / "silent"):
            shutil.rmtree(notes, ignore_errors=True)
        files = [self.lock_note, self.last_check, self.node_price, self.metrics_token, self.check_lock]
        globs = ("hashes*.json", "push-*.json", f"{PULUMI_LOG}*")
        for file in (*files, *(path for glob in globs for path in self.folder.glob(glob))):
            file.unlink(missing_ok=True)
        inventory.remove(self.folder)

    def exists(self) -> bool:
        """Return whether Pulumi knows the stack."""
        return any(self.name in (name, name.rpartition("/")[2]) for name in self.siblings())

    def siblings(self) -> list[str]:
        """Return the names of all stacks of the project in Pulumi's backend, as Pulumi spells them."""
        return [str(entry["name"]) for entry in self._ask("stack", "ls", "--json")]

    def outputs(self) -> inventory.StackOutputs:
        """Return the stack's outputs, secrets in the clear.

        Raises :class:`~launch.errors.InputError` when the stack does not exist or is not up,
        :class:`~launch.errors.MissingTool` without Pulumi, :class:`PulumiError` with Pulumi's own message.
        """
        answer = self._query("output", "--json", "--show-secrets")
        return inventory.StackOutputs.from_json(self.name, answer)

    def _query(self, *arguments: str) -> Any:
        return self._ask("stack", *arguments, "--stack", self.name)

    def configure(self, *words: str, given: str | None = None) -> None:
        """Run ``pulumi config`` on the stack, with ``given`` as its stdin. Raises as :meth:`outputs`."""
        self._run(["config", *words, "--stack", self.name], given)

    def _ask(self, *words: str) -> Any:
        return json.loads(self._run([*words]))

    def _run(self, words: list[str], given: str | None = None) -> str:
        try:
            return query(words, self.project, self.environment, given)
        except PulumiError as error:
            if "no stack named" in str(error):
                raise InputError("stack", self.name, "Pulumi has no such stack", self._remedy()) from None
            if _SIGNED_OUT in str(error):
                other = "" if self.configuration.exists() else f", or give another stack: {self._remedy()}"
                problem = f"stack {self.name}: Pulumi is not signed in and cannot look for it"
                raise PulumiError(f"{problem}; run `pulumi login`{other}") from None
            raise

    def state(self) -> Any:
        """Return Pulumi's state of the stack, secrets encrypted. Raises as :meth:`outputs`."""
        return self._query("export")

    def history(self) -> Any:
        """Return the newest updates, last one first, as Pulumi's JSON has them; raise as :meth:`outputs`."""
        return self._query("history", "--json", "--page-size", str(_UPDATES), "--page", "1")

    def preview(self, options: Sequence[str] = ()) -> Any:
        """Return what an update with ``options`` would change, as Pulumi's JSON has it.

        Raises as :meth:`outputs`.
        """
        return self._ask("preview", "--json", "--stack", self.name, *options)


def _digest_of(source: Path) -> str:
    path = os.path.abspath(source)  # noqa: PTH100  (a link stays as the user named it)
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]


def find_project(configured: str | None, fabfile_folder: Path | None) -> Path:
    """Return the project folder: the one that is named, else the fabfile's or one above it.

    A clone below it is not asked: its Pulumi.yaml would choose what runs. Raises
    :class:`~launch.errors.InputError` when none is found or the one named has no Pulumi.yaml.
    """
    if configured:
        folder = (fabfile_folder or Path.cwd()) / Path(configured).expanduser()
        project = _checked("ranklift.project", configured, folder)
        if not is_trusted(project / "Pulumi.yaml"):  # the fabfile's word, which may be a clone's
            remedy = f"if you trust it, set RANKLIFT_PROJECT={project}"
            raise InputError("ranklift.project", str(project / "Pulumi.yaml"), DISTRUSTED, remedy)
        return project
    if named := os.environ.get("RANKLIFT_PROJECT"):
        return _checked("RANKLIFT_PROJECT", named, Path(named).expanduser())
    if found := project_around(start := fabfile_folder or Path.cwd()):
        return found
    raise InputError(
        "project",
        str(start),
        "no Ranklift project here or above",
        'set RANKLIFT_PROJECT, or ns.configure({"ranklift": {"project": "…"}}) in the fabfile',
    )


def open_stack(project: Path, flag: str | None) -> Stack:
    """Return the stack to work on.

    A name that is ``rehearsal`` or begins with ``rehearsal-`` belongs to the rehearsal and never to Azure.
    Raises :class:`~launch.errors.InputError` when no stack is chosen, the name is not valid, or the stack
    is rehearsed and no rehearsal runs.
    """
    own = dict(os.environ)
    # An empty --stack, as of an unset variable, must not choose another one.
    name = os.environ.get("RANKLIFT_STACK") or _selected(project, own) if flag is None else flag
    if name is None:
        rehearsed = own
        with suppress(InputError):
            rehearsed = own | _rehearsal(project)
        name = _selected(project, rehearsed)
        if name is None:
            remedy = "give --stack NAME, set RANKLIFT_STACK or `pulumi stack select`"
            raise InputError("--stack", None, "no stack is chosen", remedy)
    if _NAME.fullmatch(name) is None:
        remedy = "it has letters of ASCII, digits, '-', '_' and '.'; see `pulumi stack ls`"
        raise InputError("--stack", name, "is not a stack's name", remedy)
    stack = Stack(name, project, own)
    if stack.is_rehearsed:
        return replace(stack, environment=own | _rehearsal(project))
    return stack


def _rehearsal(project: Path) -> dict[str, str]:
    from rehearsal.run_dir import Folder

    return Folder(project).environment()


def _selected(project: Path, environment: Mapping[str, str]) -> str | None:
    """Return the stack that ``pulumi stack select`` chose.

    Reads Pulumi's own note of it first: the command calls the backend, which a dry run must not, and takes a
    tenth of a second.
    """
    if chosen := noted_stack(project, environment):
        return chosen
    with suppress(PulumiError, MissingTool):
        return query(["stack", "--show-name"], project, environment).strip() or None
    return None


def _checked(key: str, value: str, folder: Path) -> Path:
    folder = folder.resolve()
    if not is_project(folder):
        problem = f"{folder} has no Pulumi.yaml of Ranklift's"
        raise InputError(key, value, problem, "name a project folder: `fab init` makes one")
    return folder
