"""The folder of the Pulumi project around the current one, and which files found there may be obeyed."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from launch.errors import InputError
from launch.remote.base.files import read_regular

__all__ = ["DISTRUSTED", "is_project", "is_trusted", "project_around"]

DISTRUSTED = "it, or its folder, belongs to another user, or everybody may write there"
"""Why a file is not obeyed, for errors."""
_MOST_BYTES = 1 << 20


def is_project(folder: Path) -> bool:
    """Return whether ``folder`` is a checkout of the Pulumi project."""
    try:
        text = read_regular(os.path.realpath(folder / "Pulumi.yaml"), _MOST_BYTES).decode(errors="replace")
    except OSError:
        return False
    return re.search(r"^name:\s*[\"']?ranklift[\"']?\s*$", text, re.MULTILINE) is not None


def project_around(folder: Path) -> Path | None:
    """Return the nearest project folder: ``folder`` or one above it; None without one.

    Raise :class:`~launch.errors.InputError` for one that another user may have put there: its ssh_config and
    its Pulumi program run commands.
    """
    found = next((one for one in (folder, *folder.parents) if is_project(one)), None)
    if found is not None and not is_trusted(found / "Pulumi.yaml"):
        remedy = f"if you trust it, set RANKLIFT_PROJECT={found}"
        raise InputError("project", str(found / "Pulumi.yaml"), DISTRUSTED, remedy)
    return found


def is_trusted(file: Path) -> bool:
    """Return whether a file that was found by a search may be obeyed: it and its folder are the user's own,
    or root's, and not everybody may write there.

    Modules that a fabfile imports, and settings that Fabric runs, lie beside it. Whoever uses ``sudo`` is
    still the same user. git has this rule since CVE-2022-24765.
    """
    folders = [file.parent, file.parent.parent] if file.name == "__init__.py" else [file.parent]
    for path in (file, *folders):
        try:
            found = (path.lstat(), path.stat())
        except OSError:
            return False
        if any(one.st_uid not in _own_ids() for one in found) or found[1].st_mode & stat.S_IWOTH:
            return False
    real = file.resolve()
    return real == file or is_trusted(real)


def _own_ids() -> set[int]:
    sudo = os.environ.get("SUDO_UID", "")
    return {0, os.getuid(), *([int(sudo)] if os.getuid() == 0 and sudo.isdecimal() else [])}
