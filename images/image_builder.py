"""A recipe's steps as Azure Image Builder runs them: :mod:`images.build.program` makes its template."""

from __future__ import annotations

from typing import Any

from images.steps import Step

__all__ = ["shell_customizer"]

_END = "RANKLIFT_STEP"


def shell_customizer(step: Step) -> dict[str, Any]:
    """One step as a ``Shell`` customizer.

    Image Builder hands the lines to a plain user's ``sh``. The step goes to a file and is run from there, by
    root: read from a pipe, it could be eaten by a command that reads its input.

    >>> shell_customizer(Step("70-limits", "limits", "#!/bin/bash\\nulimit -a\\n"))["inline"]
    ["cat >/tmp/70-limits.sh <<'RANKLIFT_STEP'", '#!/bin/bash', 'ulimit -a', 'RANKLIFT_STEP', \
'sudo bash /tmp/70-limits.sh </dev/null', 'rm /tmp/70-limits.sh']
    """
    lines = step.script.splitlines()
    assert _END not in lines, f"{step.name} holds the line that would end it"  # noqa: S101 - our own scripts
    # Packer, which Image Builder is made of, would put something in place of these.
    assert "{{" not in step.script, f"{step.name} holds a Packer template"  # noqa: S101
    path = f"/tmp/{step.file_name}"  # noqa: S108 - on a machine of its own, which exists for this build
    inline = [f"cat >{path} <<'{_END}'", *lines, _END, f"sudo bash {path} </dev/null", f"rm {path}"]
    return {"type": "Shell", "name": step.name, "inline": inline}
