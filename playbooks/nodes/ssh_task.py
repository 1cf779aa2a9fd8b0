"""A shell on one node: ``ssh``."""

from __future__ import annotations

import os
import shutil

from invoke.context import Context

from infra.inventory import KEY_FILE, KNOWN_HOSTS_FILE, SSH_CONFIG_FILE
from launch.errors import InputError, MissingTool
from playbooks.cli import output
from playbooks.cli.task import command, open_from
from playbooks.nodes.choose import choose_node, choose_nodes

__all__ = ["ssh"]


@command(
    "ssh",
    example="fab ssh 3",
    help={"node": "node, by instance id or name (default: the one with the lowest id)"},
    iterable=["node"],
    positional=["node"],
)
def ssh(
    context: Context, node: list[str] | None = None, stack: str | None = None, dry_run: bool = False
) -> None:
    """Open a shell on one node.

    Runs the ssh on PATH with the settings and keys of the stack alone.
    """
    chosen = open_from(context, stack)
    inventory = chosen.saved()
    if node and node[1:]:
        raise InputError("node", node[1], "is one too many", 'name one; `fab exec "COMMAND"` runs on several')
    wanted = choose_node(inventory, node[0], "node") if node else choose_nodes(inventory, None)[0]
    argv = ["ssh", "-F", str(chosen.folder / SSH_CONFIG_FILE), wanted.name]
    for file in (SSH_CONFIG_FILE, KNOWN_HOSTS_FILE, KEY_FILE):
        if not (chosen.folder / file).is_file():  # ssh names the file, but not the remedy
            problem = f"{chosen.folder / file} does not exist"
            raise InputError("stack", chosen.name, problem, f"run `fab status --stack {chosen.name}`")
    if dry_run:
        output.command(argv)
        return
    program = shutil.which("ssh")
    if program is None:
        raise MissingTool("ssh", "install OpenSSH's client")
    os.execv(program, argv)  # noqa: S606  (ssh takes over the terminal and the exit status)
