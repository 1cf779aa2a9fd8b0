"""The stack's settings: ``config``."""

from __future__ import annotations

from invoke.context import Context

from playbooks.cli.task import command, open_from

__all__ = ["config"]


@command(
    "config",
    example="fab config set nodeCount 4",
    help={
        "words": "get KEY, set KEY VALUE or rm KEY; without a word: list what is set, and where",
        "path": "KEY is a path into a map or list, as tags.team or dataOperators[0]",
        "secret": "encrypt the value, which is read from stdin or asked for at the terminal",
    },
    positional=["words"],
    iterable=["words"],
)
def config(
    context: Context,
    words: list[str] | None = None,
    stack: str | None = None,
    path: bool = False,
    secret: bool = False,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """List, print, change or remove the stack's settings.

    `set` and `rm` first check what all settings would then be, as `fab up` does, and refuse a change that
    makes a mistake; a setting that is still missing is none. `pulumi config` then changes the configuration
    file. KEY may lack ranklift:. VALUE of a map or list is JSON. Nothing changes in Azure before `fab up`.
    """
    from playbooks.pulumi.configuring import configure

    configure(open_from(context, stack), words or [], path=path, secret=secret, json=json, dry_run=dry_run)
