"""The settings of blob storage, checked beside each other."""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network

from infra.config.cluster_config import ClusterConfig
from infra.config.collector import Settings
from infra.config.readers import KEY, string_list, whole_number
from launch.data.data_address import read_container
from launch.data.data_spec import BlobAddress
from launch.data.data_stores import Limits, refuse_sas
from launch.errors import InputError
from launch.numbers import shown

__all__ = ["firewall_sources", "mismatches", "object_ids", "positive", "read_datastores", "read_limits"]

_MOST = 1_000_000

_PRIVATE = [IPv4Network(p) for p in ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")]
"""Ranges that address rules do not take (learn.microsoft.com storage-network-security)."""

_NARROWEST_RANGE = 30  # rules take single addresses instead of a /31 or /32 (same source)


def firewall_sources(ssh_from: tuple[str, ...]) -> tuple[str, ...]:
    """Return the operator's networks as rules of a storage account take them, without private ones.

    >>> firewall_sources(("203.0.113.7/32", "198.51.100.0/31", "198.51.100.0/24", "10.9.0.0/24"))
    ('203.0.113.7', '198.51.100.0', '198.51.100.1', '198.51.100.0/24')
    """
    sources: list[str] = []
    for network in map(IPv4Network, ssh_from):
        if any(network.overlaps(private) for private in _PRIVATE):
            continue
        if network.prefixlen > _NARROWEST_RANGE:
            sources += map(str, network)
        else:
            sources.append(str(network))
    return tuple(sources)


def object_ids(key: str, value: object) -> tuple[str, ...]:
    """Read ids of people in the directory.

    >>> object_ids("ranklift:dataOperators", "00000000-0000-0000-0000-00000000000B")
    ('00000000-0000-0000-0000-00000000000b',)
    """
    found = []
    for given in string_list(key, value):
        try:
            found.append(str(uuid.UUID(given)))
        except ValueError:
            remedy = "use the output of `az ad signed-in-user show --query id -o tsv`"
            raise InputError(key, given, "is not an object id", remedy) from None
    return tuple(dict.fromkeys(found))


def read_datastores(key: str, value: object) -> dict[str, BlobAddress]:
    """Read the containers of other accounts, by the names that job files give them.

    >>> acme = "https://acme.blob.core.windows.net/sets"
    >>> read_datastores("ranklift:datastores", {"big": acme})["big"].container
    'sets'
    """
    remedy = "write big: https://ACCOUNT.blob.core.windows.net/CONTAINER below it"
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = json.loads(value)  # as Pulumi passes it
    if not isinstance(value, dict):
        raise InputError(key, value, "is not a mapping of names to containers", remedy)
    found = {}
    for name, text in value.items():
        where = f"{key}.{name}"
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*", str(name)):
            raise InputError(where, None, "is not a datastore's name", "use letters, digits, _ and -")
        if not isinstance(text, str):
            raise InputError(where, text, "is not the address of a container", remedy)
        found[str(name)] = read_container(where, text)
        refuse_sas(where, found[str(name)])
    return found


def read_limits(settings: Mapping[str, object]) -> Limits:
    """Read what stagings may take.

    >>> read_limits({"ranklift:dataDiskGib": "500", "ranklift:dataRateMBps": 250})
    Limits(disk=536870912000, downloads=None, rate=250000000)
    """

    def read(name: str, unit: int) -> int | None:
        key = f"{KEY}{name}"
        return None if settings.get(key) is None else positive(key, settings[key]) * unit

    return Limits(read("dataDiskGib", 1 << 30), read("dataDownloads", 1), read("dataRateMBps", 1_000_000))


def positive(key: str, value: object) -> int:
    """Read a whole number from 1 on, up to what no disk or network has."""
    remedy = "set it to a whole number from 1 on, or remove it"
    number = whole_number(key, value, remedy)
    if not 1 <= number <= _MOST:
        raise InputError(key, shown(value, number), f"is not from 1 to {_MOST}", remedy)
    return number


def mismatches(config: ClusterConfig, _settings: Settings) -> Iterator[InputError]:
    """Yield an error for each combination of storage settings that makes no sense."""
    if config.storage_account_id and config.storage == "none":
        yield InputError(
            f"{KEY}storageAccountId",
            config.storage_account_id,
            f"is given, but {KEY}storage is none, so the nodes cannot use it",
            f"set {KEY}storage to serviceEndpoint or privateEndpoint, or remove the account",
        )
    if config.data_operators and (config.storage == "none" or config.storage_account_id):
        given = config.storage_account_id is not None
        yield InputError(
            f"{KEY}dataOperators",
            ", ".join(config.data_operators),
            "is for an account that the stack makes",
            'assign "Storage Blob Data Contributor" on the existing account yourself, and remove it'
            if given
            else f"set {KEY}storage to serviceEndpoint or privateEndpoint, or remove it",
        )
    if config.retain_data and not config.owns_data:
        given = config.storage != "none" and config.storage_account_id is not None
        why = "a given storage account is never deleted" if given else "nothing is stored outside the nodes"
        yield InputError(
            f"{KEY}retainData",
            "true",
            f"has nothing to keep: {why}",
            "remove it" if given else f"set {KEY}storage or {KEY}nfs, or remove it",
        )
