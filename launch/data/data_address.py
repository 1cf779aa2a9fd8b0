"""Addresses of data as Azure ML's files and users write them.

The forms are those of Azure ML ("Data concepts", "CLI (v2) core YAML syntax"), of Blob storage ("Naming and
referencing containers, blobs, and metadata") and of Hadoop's drivers for it (``wasbs``, ``abfss``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from launch.data.data_spec import (
    Address,
    AssetName,
    BlobAddress,
    DatastorePath,
    LocalPath,
    NodePath,
    WebAddress,
)
from launch.errors import InputError

__all__ = ["CONTAINER", "is_address", "read_address", "read_container", "without_query"]

CONTAINER = re.compile(r"(?=.{3,63}$)[a-z0-9]+(?:-[a-z0-9]+)*|\$web|\$root")
"""Names that containers can have."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?!\\)")
_STORE = re.compile(r"azureml://(?:subscriptions/.+/)?datastores/([^/]+)(?:/paths/(.*))?", re.DOTALL)
_ASSETS = (
    re.compile(r"azureml:([A-Za-z0-9][\w.-]*)(?::([\w.-]+)|@(\w+))?"),
    re.compile(
        r"azureml:/*(?:subscriptions|locations|registries)/.+/data/([\w.-]+)/"
        r"(?:versions/([\w.-]+)|labels/(\w+))"
    ),
)
_HOST = re.compile(r"([a-z0-9]{3,24}(?:\.z[0-9]+)?)\.(?:blob|dfs)\.(core\.windows\.net|storage\.azure\.net)")
_HADOOP = re.compile(r"(?:wasbs?|abfss?)://([^@/]+)@([^/]+)(?:/(.*))?", re.DOTALL)
_USER = re.compile(r"(?<=://)[^/@?]*@")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_RESERVED = "/%:@!$&'()*+,;=?"
"""Characters that an address has as they are: RFC 3986, section 3.3."""
_LONGEST = 1024
"""Characters of a blob's name."""
_SIGNED = re.compile(r"(^|&)sig=")
_FORMS = (
    "azureml://datastores/NAME/paths/PATH, azureml:NAME:VERSION, https://…, wasbs://…, abfss://… or file://…"
)
_SHORT = {"adl": "Data Lake Storage Gen1 has ended", "azureml": "is not an address of data"}


def is_address(text: str) -> bool:
    """Return whether a text is an address, not a path of this machine.

    >>> is_address("azureml:iris:1"), is_address("data/iris.csv"), is_address(r"C:\\data")
    (True, False, False)
    """
    return _SCHEME.match(text) is not None


def without_query(text: str) -> str:
    """Return the text without an address's query, name and password, which may be secrets.

    >>> without_query("https://a.blob.core.windows.net/data/x?sv=1&sig=abc")
    'https://a.blob.core.windows.net/data/x?…'
    """
    before, mark, _ = text.partition("?")
    if not is_address(before):
        return text
    before = _USER.sub("", before) if before.startswith("http") else before
    return f"{before}?…" if mark else before


def read_address(key: str, text: str) -> Address:
    """Return what an address names; ``key`` is what errors name.

    >>> read_address("path", "wasbs://data@acme.blob.core.windows.net/iris").url
    'https://acme.blob.core.windows.net/data/iris'
    >>> read_address("path", "azureml:iris@latest")
    AssetName(name='iris', version='')

    Raise :class:`~launch.errors.InputError`, which shows no query.
    """

    def wrong(problem: str, remedy: str) -> InputError:
        return InputError(key, without_query(text), problem, remedy)

    scheme = _SCHEME.match(text)
    if scheme is None:
        return LocalPath(Path(text))
    name = scheme[1].lower()
    if name == "file":
        return NodePath(_node_path(text, wrong))
    if name not in ("http", "https") and _SIGNED.search(text.partition("?")[2].replace("?", "&")):
        remedy = "give --sas-file FILE with the https: address and its SAS"
        raise wrong("holds a SAS as part of a name", remedy)
    if name == "azureml":
        return _azureml(text, wrong)
    if name in ("wasb", "wasbs", "abfs", "abfss"):
        found = _HADOOP.fullmatch(text)
        if found is None or (account := _account(found[2])) is None:
            raise wrong(
                "does not name a container and an account",
                f"write {name}://CONTAINER@ACCOUNT.blob.core.windows.net/PATH",
            )
        return BlobAddress(account, _container(found[1], wrong), _path(found[3] or "", wrong))
    if name == "https":
        return _https(text, wrong)
    if name == "http":
        raise wrong("is not encrypted", "give the https: address")
    raise wrong(_SHORT.get(name, f"data at {name}: is not fetched"), f"copy it to storage and give {_FORMS}")


def read_container(key: str, text: str) -> BlobAddress:
    """Return the container, or the folder in it, that an ``https:`` address names: what a datastore is.

    >>> read_container("datastores.big", "https://acme.blob.core.windows.net/sets/").container
    'sets'

    Raise :class:`~launch.errors.InputError`.
    """
    found = read_address(key, text)
    if not isinstance(found, BlobAddress):
        remedy = "write https://ACCOUNT.blob.core.windows.net/CONTAINER"
        raise InputError(key, without_query(text), "is not the address of a container", remedy)
    return found


def _node_path(text: str, wrong: Callable[[str, str], InputError]) -> str:
    path = text.partition(":")[2]
    path = path.removeprefix("//") if path.startswith("//") else path
    if not path.startswith("/"):
        raise wrong("is not an absolute path on the nodes", "write three slashes: file:///data/images")
    return path


def _azureml(text: str, wrong: Callable[[str, str], InputError]) -> Address:
    if store := _STORE.fullmatch(text):
        return DatastorePath(store[1], _path(store[2] or "", wrong))
    for form in _ASSETS:
        if found := form.fullmatch(text):
            if (label := found[3]) not in (None, "latest"):
                raise wrong(f"has the label {label}", "use @latest or a version")
            return AssetName(found[1], found[2] or "")
    raise wrong(_SHORT["azureml"], f"write {_FORMS}")


def _https(text: str, wrong: Callable[[str, str], InputError]) -> Address:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise wrong("is not an address", "write https://HOST/PATH") from None
    is_plain = parts.netloc.isascii() and not _CONTROL.search(text) and " " not in text
    if not host or parts.username is not None or parts.fragment or not is_plain:
        raise wrong(
            "has no host, a name and password, a fragment, a blank, or a host that is not ASCII",
            "write https://HOST/PATH, with %20 for a blank",
        )
    account = _account(parts.netloc)
    if account is None:
        path, query = (quote(one, safe=_RESERVED) for one in (parts.path or "/", parts.query))
        return WebAddress(f"https://{parts.netloc}{path}", query)
    if parts.query and not _SIGNED.search(parts.query):
        raise wrong("names a version or a snapshot of a blob", "give the address without its query")
    container, _, path = parts.path.lstrip("/").partition("/")
    try:
        path = unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise wrong("has a name that is not UTF-8", "percent-encode its UTF-8") from None
    return BlobAddress(account, _container(container, wrong), _path(path, wrong), parts.query)


def _account(host: str) -> str | None:
    """Return the address of the account that a host is; None for another host.

    >>> _account("acme.dfs.core.windows.net"), _account("example.com")
    ('https://acme.blob.core.windows.net', None)
    """
    found = _HOST.fullmatch(host.lower())
    return f"https://{found[1]}.blob.{found[2]}" if found else None


def _container(name: str, wrong: Callable[[str, str], InputError]) -> str:
    if not CONTAINER.fullmatch(name):
        problem = f"{name} is not a container's name" if name else "has no container"
        raise wrong(problem, "name one: 3 to 63 small letters, digits and single hyphens")
    return name


def _path(path: str, wrong: Callable[[str, str], InputError]) -> str:
    """Return a path in a container without slashes at its ends; refuse parts that no file can be called."""
    path = path.strip("/")
    if len(path) > _LONGEST:
        raise wrong(f"has a path of {len(path)} characters", f"shorten it: storage takes {_LONGEST}")
    for part in path.split("/") if path else ():
        if part in ("", ".", "..") or _CONTROL.search(part):
            raise wrong(
                f"has the part {part!r}" if part else "has an empty part",
                "write the path from the container on, without ., .. and double slashes",
            )
    return path
