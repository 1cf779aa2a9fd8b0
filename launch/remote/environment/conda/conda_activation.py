"""What activating a conda environment sets: found once on the head, set for the ranks of each job.

As in conda: the variables of packages (``etc/conda/env_vars.d``), then ``CONDA_PREFIX``, then bash reads
``etc/conda/activate.d/*.sh`` (https://docs.conda.io/projects/conda/en/stable/dev-guide/deep-dives/activation.html).
"""

from __future__ import annotations

import glob
import json
import os
import tempfile
from collections.abc import Mapping, Sequence

from launch.remote.base.files import replace_file
from launch.remote.environment import build
from launch.remote.environment.build import Failed, Report

__all__ = ["activated", "write_activation"]

_FILE = "conda-meta/ranklift-variables.json"
_READ = 'for file in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do . "$file"; done; env -0 >"$0"'
_SHELLS = ("_", "PWD", "OLDPWD", "SHLVL")
_NOT_RANKS = ("PATH", "HOME")
_PATH = "/usr/local/bin:/usr/bin:/bin"


def write_activation(folder: str, keep_open: Sequence[int], report: Report) -> None:
    """Find what activating the environment in ``folder`` sets; write it there. The shell inherits
    ``keep_open``. Raise :class:`Failed`."""
    before = {**_of_packages(folder), "CONDA_PREFIX": folder}
    scripts = sorted(glob.glob(os.path.join(glob.escape(folder), "etc/conda/activate.d/*.sh")))
    found = dict(before)
    if scripts:
        base = {"PATH": f"{folder}/bin:{_PATH}", "HOME": os.path.expanduser("~")}
        after = _after({**base, **before}, keep_open, report)
        names = ", ".join(os.path.basename(script) for script in scripts)
        if not after:
            raise Failed(
                f"activating the packages: one of {names} in etc/conda/activate.d ends the shell, so that "
                "what activation sets is not known; leave its package out"
            )
        changed = [name for name in _NOT_RANKS if after.get(name) != base[name]]
        if changed:
            report(f"note: {names} of the packages also set {' and '.join(changed)}, which ranks do not get")
        found = {
            name: value
            for name, value in after.items()
            if name not in (*_SHELLS, *_NOT_RANKS) and not name.startswith("CONDA_BACKUP_")
        }
    # As for packages on an image: those in the home folder of a node are not the environment's.
    found.setdefault("PYTHONNOUSERSITE", "1")
    replace_file(os.path.join(folder, _FILE), json.dumps(found, sort_keys=True).encode())


def activated(folder: str) -> dict[str, str]:
    """Return what activating the environment in ``folder`` sets; nothing where conda did not make it."""
    try:
        with open(os.path.join(folder, _FILE), encoding="utf-8") as stream:
            found: dict[str, str] = json.load(stream)
    except FileNotFoundError:
        return {}
    return found


def _of_packages(folder: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "etc/conda/env_vars.d/*.json"))):
        try:
            with open(path, encoding="utf-8") as stream:
                found.update({str(name): str(value) for name, value in json.load(stream).items()})
        except (ValueError, AttributeError) as error:
            raise Failed(f"{path} of a package is not a mapping of variables: {error}") from error
    return found


def _after(env: Mapping[str, str], keep_open: Sequence[int], report: Report) -> dict[str, str]:
    """Return the variables after the packages' scripts."""
    with tempfile.NamedTemporaryFile() as out:
        what, argv = "reading the packages' activate.d", ["bash", "-c", _READ, out.name]
        build.run(what, argv, env, report, steps=("note:",), keep_open=keep_open)
        pairs = out.read().decode("utf-8", "surrogateescape").split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)
