"""What the channels and package specifications of a conda file mean on this node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from launch.remote.environment.build import Failed
from launch.remote.environment.conda.condarc import Condarc

__all__ = ["Source", "resolve", "searched"]

NO_DEFAULTS = "nodefaults"
"""In a conda file: search its own channels alone."""
_FOLDER = "folder:"
_LOGIN = re.compile(r"(?<=://)[^/\s@]+(?=@)|(?<=/t/)[^/\s]+")


@dataclass(frozen=True)
class Source:
    """Channels by URL, the first one preferred, and specifications that name no other."""

    channels: tuple[str, ...]
    specs: tuple[str, ...]


def searched(channels: Iterable[str], settings: Condarc, folders: Sequence[str]) -> tuple[str, ...]:
    """Return the channels to search, with those that conda adds; folders that were sent are URLs.

    conda searches its configured channels after those of the file, unless that has ``nodefaults``:
    https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html. It writes its
    command line to conda-meta/history. Raise :class:`Failed` for a password or token.

    >>> searched(["conda-forge", "folder:0"], Condarc(), ["/sent/a"])
    ('conda-forge', 'file:///sent/a', 'defaults')
    >>> searched(["conda-forge", "nodefaults"], Condarc(), [])
    ('conda-forge',)
    """
    given = list(channels)
    more = () if NO_DEFAULTS in given else settings.channels
    names = (name for name in (*given, *more) if name != NO_DEFAULTS)
    found = tuple(dict.fromkeys(_sent(name, folders) for name in names))
    _refuse_logins(found)
    return found


def resolve(channels: Iterable[str], specs: Iterable[str], settings: Condarc) -> Source:
    """Return what conda would search for, by URL. Raise :class:`Failed`.

    >>> resolve(["defaults"], ["pytorch::torch=2"], Condarc(default_channels=("main",)))
    ... # doctest: +NORMALIZE_WHITESPACE
    Source(channels=('https://conda.anaconda.org/main', 'https://conda.anaconda.org/pytorch'),
           specs=('https://conda.anaconda.org/pytorch::torch=2',))
    """
    if settings.elsewhere:
        raise Failed(
            f"{settings.elsewhere[0]}: only conda itself obeys this key; remove it, or have conda on the node"
        )
    urls = [url for channel in channels for url in _urls(channel, settings)]
    texts = []
    for spec in specs:
        channel, colons, rest = spec.rpartition("::")
        if not colons:
            texts.append(spec)
            continue
        own = _urls(channel, settings)
        if len(own) != 1:
            raise Failed(f"{spec}: {channel} stands for {len(own)} channels; name one of {', '.join(own)}")
        urls += own
        texts.append(f"{own[0]}::{rest}")
    _refuse_logins(urls)
    return Source(tuple(dict.fromkeys(urls)), tuple(texts))


def _refuse_logins(channels: Iterable[str]) -> None:
    for channel in channels:
        if _LOGIN.search(channel):
            raise Failed(
                f"channel {_LOGIN.sub('***', channel)}: a password or token would stay in the environment's "
                "records; use a channel without one, or a folder with a copy of its packages"
            )


def _sent(channel: str, folders: Sequence[str]) -> str:
    return "file://" + folders[int(channel[len(_FOLDER) :])] if channel.startswith(_FOLDER) else channel


def _urls(channel: str, settings: Condarc) -> list[str]:
    """Return the URLs of a channel: a name's are those that the settings give it, as in conda."""
    several = {"defaults": settings.default_channels, **settings.custom_multichannels}
    if channel in several:
        return [_url(one, settings) for one in several[channel]]
    return [_url(channel, settings)]


def _url(channel: str, settings: Condarc) -> str:
    if "://" in channel:
        return channel.rstrip("/")
    if channel.startswith("/"):
        return "file://" + channel.rstrip("/")
    parts = channel.strip("/").split("/")
    bases = (settings.custom_channels.get("/".join(parts[:size])) for size in range(len(parts), 0, -1))
    base = next(filter(None, bases), settings.channel_alias).rstrip("/")
    if base.startswith("/"):
        base = "file://" + base
    if "://" not in base:
        raise Failed(f"channel {channel}: {base} of the .condarc is not a URL; write it with https://")
    return "/".join([base, *parts])
