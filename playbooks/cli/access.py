"""``--fill`` and ``--allow-path``: what files of a repository may read of this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from launch.access import Access
from launch.errors import InputError
from launch.printable import for_terminal
from playbooks.cli import output

__all__ = ["ACCESS", "ALLOW_HELP", "access_flags"]

ALLOW_HELP = (
    "a folder or file outside of the repository that its files may name, and that links may lead into; may "
    "be repeated"
)
ACCESS = {
    "fill": "a variable of this machine that ${NAME} in requirements and conda files is replaced by; may be "
    "repeated",
    "allow_path": ALLOW_HELP,
}
"""Options of every task that reads such files, with their help."""
_NAME = re.compile(r"[A-Z0-9_]+")


def access_flags(fill: Sequence[str] | None, allow_path: Sequence[str] | None) -> Access:
    """Return what the options allow. Raise :class:`~launch.errors.InputError` for a variable that is not set,
    and for a path that does not exist."""
    found = {}
    for name in fill or ():
        if _NAME.fullmatch(name) is None:
            remedy = "give the name alone, of capital letters, digits and _: --fill INDEX_TOKEN"
            raise InputError("--fill", name.partition("=")[0], "is not the name of such a variable", remedy)
        if name not in os.environ:
            raise InputError(
                "--fill", name, "is not set in the environment of this command", f"export {name}"
            )
        found[name] = os.environ[name]
    return Access(_allowed_paths(allow_path), found, lambda question: output.ask(for_terminal(question)))


def _allowed_paths(given: Sequence[str] | None) -> tuple[Path, ...]:
    """Return the resolved paths of ``--allow-path``. Raise :class:`~launch.errors.InputError`."""
    paths = tuple(Path(os.path.realpath(os.path.expanduser(text))) for text in given or ())  # noqa: PTH111
    for text, path in zip(given or (), paths, strict=True):
        if not path.exists():
            raise InputError("--allow-path", text, "does not exist", "name a folder or a file")
    return paths
