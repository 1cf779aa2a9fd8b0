"""Build an image for nodes: ``image.build``."""

from __future__ import annotations

import time
from dataclasses import dataclass

from invoke.context import Context

from launch.errors import InputError
from playbooks.cli import output
from playbooks.cli.task import command, limit_help, project_of, seconds, seconds_left
from playbooks.project import Stack, open_stack
from playbooks.selection import IMAGE_PROGRAM

__all__ = ["ImageStack", "build"]

_LIMIT = "30m"


@dataclass(frozen=True, slots=True)
class ImageStack(Stack):
    """A stack of the program that makes an image."""

    @property
    def program(self) -> str:
        """The name of its Pulumi program."""
        return "ranklift-images"

    @property
    def pulumi_command(self) -> str:
        """The words that begin a command of plain Pulumi on its program."""
        return f"pulumi -C {self.project}"

    @property
    def update_command(self) -> str:
        """The command that continues an update of it, after repairs where Pulumi was killed."""
        return f"fab image.build --stack {self.name}"

    @property
    def removal_command(self) -> str:
        """The command that removes all that it has in Azure."""
        return f"{self.pulumi_command} destroy --stack {self.name}"


@command(
    "build",
    example="fab image.build --stack gpu-images",
    help={
        "stack": f"stack of {IMAGE_PROGRAM} that describes the image; RANKLIFT_STACK does not count",
        "timeout": limit_help(_LIMIT),
    },
)
def build(
    context: Context,
    stack: str | None = None,
    timeout: str = _LIMIT,
    dry_run: bool = False,
) -> None:
    """Have Azure build an image for nodes, as the stack's configuration describes it.

    Runs `pulumi up --yes` in images/build, and creates the stack if it does not exist. Azure may not know a
    new identity, its role or its right everywhere at once: what it refuses for that is repeated for up to 5
    minutes. Azure builds the image afterwards, for an hour or more; the output `progress` is the command that
    shows how far it is.
    """
    limit = seconds("--timeout", timeout)
    chosen = _open(context, stack)
    update = ["up", "--yes", "--stack", chosen.name]
    if dry_run:
        output.steps([f"{chosen.pulumi_command} {' '.join(update)}"], json=False)
        return
    from playbooks.pulumi.recover import recover
    from playbooks.pulumi.run import pulumi, retry_while_busy

    deadline = time.monotonic() + limit
    if chosen.exists():
        recover(chosen)
    else:
        pulumi(chosen, ["stack", "init", chosen.name])
    retry_while_busy(lambda: pulumi(chosen, update, limit=seconds_left(deadline)), deadline)


def _open(context: Context, name: str | None) -> ImageStack:
    folder = project_of(context) / IMAGE_PROGRAM
    if name is None:
        remedy = f"give --stack NAME; `pulumi -C {folder} stack ls` lists the names"
        raise InputError("--stack", None, "the image's stack is not named", remedy)
    if not (folder / "Pulumi.yaml").exists():
        remedy = "`fab init` writes that of a project folder in a repository of your own"
        raise InputError("project", str(folder), "has no Pulumi.yaml", remedy)
    found = open_stack(project_of(context), name)
    # Pulumi prints the outputs, among them the command that shows how far Azure is.
    chosen = ImageStack(found.name, folder, found.environment, shows_pulumi=True)
    if not chosen.configuration.exists():
        remedy = "check the name, or set the image's settings first: see docs/images.md"
        raise InputError("--stack", name, f"has no {chosen.configuration.name} in {folder}", remedy)
    return chosen
