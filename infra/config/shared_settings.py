"""The settings of the folder that all nodes share: ``nfs``, and what the chosen kind reads besides."""

from __future__ import annotations

from collections.abc import Iterator

from infra.cluster.shared.registry import KINDS
from infra.config.cluster_config import ClusterConfig, SharedFolder, Storage
from infra.config.collector import Settings
from infra.config.readers import KEY, one_of
from launch.errors import InputError

__all__ = ["mismatches", "read_shared", "shared_keys"]


def shared_keys() -> tuple[str, ...]:
    """Return the keys of all settings that any kind reads, ``nfs`` first."""
    return ("nfs", *dict.fromkeys(key for kind in KINDS.values() for key in kind.keys))


def read_shared(settings: Settings, storage: Storage) -> SharedFolder | None:
    """Return the configured shared folder, if any; add to ``settings.errors`` what is wrong.

    ``storage`` is how the nodes reach blob storage, which some kinds go by.
    """
    name = settings.optional("nfs", one_of("none", *KINDS), "none")
    kind = KINDS.get(name)
    return kind.read(settings, storage) if kind else None


def mismatches(config: ClusterConfig, settings: Settings) -> Iterator[InputError]:
    """Yield an error for each setting that belongs to kinds other than the chosen one."""
    name = config.shared.kind if config.shared else "none"
    for key in shared_keys()[1:]:
        readers = [kind.name for kind in KINDS.values() if key in kind.keys]
        if settings.has(key) and name not in readers:
            yield InputError(
                f"{KEY}{key}",
                settings.all[key],
                f"is set, but {KEY}nfs is {name}",
                f"set {KEY}nfs to {' or '.join(readers)}, or remove it",
            )
