"""What of this machine nodes must not see: where the user who rehearses keeps credentials.

Nodes are meant to be other machines, and what runs on them runs as this user: a job that reads ``~/.ssh``
finds nothing on Azure, and must find nothing here.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NAMES", "NESTED", "VARIABLES", "PrivatePaths", "private_paths"]

NAMES = (
    ".aws",
    ".azure",
    ".cargo",
    ".claude",
    ".config",
    ".databricks",
    ".docker",
    ".git-credentials",
    ".gnupg",
    ".huggingface",
    ".kaggle",
    ".kube",
    ".m2",
    ".mozilla",
    ".netrc",
    ".npm",
    ".oci",
    ".password-store",
    ".pulumi",
    ".ranklift",
    ".ssh",
    ".terraform.d",
    ".vault-token",
)
"""In the home folder; what else there is a file, and not a folder, nodes do not see either."""

NESTED = (".cache/huggingface", ".local/share/keyrings")
"""Below folders of the home folder that may hold the nodes' own Python."""

VARIABLES = (
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AZURE_CONFIG_DIR",
    "DOCKER_CONFIG",
    "GNUPGHOME",
    "KUBECONFIG",
    "PULUMI_HOME",
    "XDG_CONFIG_HOME",
)
"""Environment variables by which the same lies elsewhere."""

_NEVER_REBUILT = (Path("/"), Path("/home"))


@dataclass(frozen=True, slots=True)
class PrivatePaths:
    """Real paths, without symbolic links."""

    homes: tuple[Path, ...]
    """Home folders, of which nodes see the folders that are there when their network is made, but for
    :data:`NAMES`: what is made later stays unseen, too."""
    hidden: tuple[Path, ...]
    """Files and folders that are empty to nodes, wherever they lie."""


def private_paths(environment: Mapping[str, str], needed: tuple[Path, ...]) -> PrivatePaths:
    """Return what is private now to the user of this process.

    Nothing in which one of the ``needed`` paths lies is hidden, whatever a variable says.
    """
    homes = dict.fromkeys(home.resolve() for home in _homes(environment) if home.is_dir())
    named = [home / name for home in homes for name in (*NAMES, *NESTED)]
    named += [Path(one) for name in VARIABLES for one in environment.get(name, "").split(os.pathsep) if one]
    hidden = dict.fromkeys(path.resolve() for path in named if path.exists())
    kept = [path.resolve() for path in needed]
    return PrivatePaths(
        # Not one that is the system's, as that of a service's user may be.
        tuple(home for home in homes if home not in _NEVER_REBUILT and home.stat().st_uid == os.getuid()),
        tuple(path for path in hidden if not any(one.is_relative_to(path) for one in kept)),
    )


def _homes(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("HOME"):
        yield Path(environment["HOME"])
    try:
        yield Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return  # a container's user may have no entry
