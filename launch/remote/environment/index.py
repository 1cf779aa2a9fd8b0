"""The package index of a node: the requirements' own lines, else pip's and uv's settings there."""

from __future__ import annotations

import base64
import configparser
import hashlib
import http.client
import os
import re
import ssl
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from launch.remote.environment.build import Failed
from launch.remote.environment.download.web_client import Reach, WebClient, load_object

__all__ = ["PUBLIC", "Index", "certificates", "download", "read_index", "without_login"]

PUBLIC = "https://pypi.org/simple"
_FILES = ("/etc/xdg/pip/pip.conf", "/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
"""pip's configuration files of a machine and a user, as listed in
https://pip.pypa.io/en/stable/topics/configuration/; later ones win."""
_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
_LINE = re.compile(r"^\s*(?:--(index-url|extra-index-url|find-links|no-index)|(-i|-f))(?:[\s=]+(\S+))?", re.M)
_HREF = re.compile(rb'href\s*=\s*["\']([^"\']*)["\']')
_SHORT = {"-i": "index-url", "-f": "find-links"}
_WAIT_S = 30
_LARGEST = 256 << 20
"""Bytes of a file: uv's wheel has a tenth."""
_LARGEST_PAGE = 32 << 20
"""Bytes of an index's page: uv's has a hundredth."""


class Index(NamedTuple):
    """Where packages come from."""

    url: str
    """The index; "" where there is none (``--no-index``)."""
    extra: tuple[str, ...]
    find_links: tuple[str, ...]
    certificates: str
    """File of trusted certificates; "" for the machine's own."""

    @property
    def urls(self) -> tuple[str, ...]:
        """All indexes, the first one first."""
        return tuple(filter(None, (self.url, *self.extra)))


def read_index(requirements: str, environ: Mapping[str, str], files: Sequence[str] = _FILES) -> Index:
    """Return the index that the requirements name, else the one that this node's settings name.

    uv reads its own settings, but not those of pip, which operators of nodes write.

    >>> read_index("--index-url https://a/simple", {"PIP_INDEX_URL": "https://b/simple"}, ()).url
    'https://a/simple'
    >>> read_index("torch", {"PIP_EXTRA_INDEX_URL": "https://c https://d"}, ())
    Index(url='https://pypi.org/simple', extra=('https://c', 'https://d'), find_links=(), certificates='')
    """
    wanted: dict[str, list[str]] = {}
    for long, short, value in _LINE.findall(requirements):
        wanted.setdefault(long or _SHORT[short], []).append(value)
    pip = _pip_settings(environ, files)

    def first(name: str, *variables: str) -> list[str]:
        if wanted.get(name):
            return wanted[name]
        texts = (environ.get(variable, "") for variable in variables)
        return (next(filter(None, texts), "") or pip.get(name, "")).split()

    url = first("index-url", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
    is_closed = "no-index" in wanted or pip.get("no-index", "").lower() in ("1", "true", "yes", "on")
    if is_closed:
        url = []
    return Index(
        "" if is_closed else url[-1] if url else PUBLIC,
        ()
        if is_closed
        else tuple(first("extra-index-url", "UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL")),
        tuple(first("find-links", "UV_FIND_LINKS", "PIP_FIND_LINKS")),
        environ.get("SSL_CERT_FILE") or environ.get("PIP_CERT") or pip.get("cert", ""),
    )


def certificates(index: Index) -> str:
    """Return the file of this node's trusted certificates. Raise :class:`Failed`.

    The places of Debian and of Red Hat: https://go.dev/src/crypto/x509/root_linux.go lists them.
    """
    for path in (index.certificates, *_CERTIFICATES):
        if path and os.path.exists(path):
            return path
    raise Failed(f"this node has none of {', '.join(_CERTIFICATES)}: install ca-certificates")


def _pip_settings(environ: Mapping[str, str], files: Sequence[str]) -> dict[str, str]:
    """Return pip's settings of this node, where the later file and the later section win."""
    parser = configparser.RawConfigParser(strict=False)
    paths = [os.path.expanduser(path) for path in (*files, environ.get("PIP_CONFIG_FILE", ""))]
    try:
        parser.read(paths, encoding="utf-8")
    except configparser.Error as error:
        raise Failed(f"pip's settings cannot be read: {error}") from error
    found: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            found.update({key.replace("_", "-"): value for key, value in parser.items(section)})
    if environ.get("PIP_NO_INDEX"):
        found["no-index"] = environ["PIP_NO_INDEX"]
    return found


def download(indexes: Iterable[Index], project: str, name: str, sha256: str) -> bytes:
    """Return the content of a project's file from the first index that has it. Raise :class:`Failed`."""
    failures = []
    certificates = {url: index.certificates for index in indexes for url in index.urls}
    for url, file in certificates.items():
        context = ssl.create_default_context(cafile=file or None)
        base = url.rstrip("/") + f"/{project}/"
        try:
            client = WebClient(without_login(base), context, _WAIT_S)
            page, reach = _get(client, base, _LARGEST_PAGE)
            link = _link(page, name)
            if link is None:
                failures.append(f"{without_login(url)} has no {name}")
                continue
            file_url = urllib.parse.urljoin(base, link)
            data, _ = _get(client, file_url, _LARGEST, login_of=base, led_by=reach)
        except (OSError, ValueError, http.client.HTTPException) as error:
            failures.append(f"{without_login(url)}: {getattr(error, 'reason', error)}")
            continue
        if hashlib.sha256(data).hexdigest() == sha256:
            return data
        failures.append(f"{without_login(url)}: {name} has another SHA-256 than the pinned one")
    raise Failed(
        f"{name} cannot be downloaded ({'; '.join(failures) or 'the package index is switched off'}): give "
        "the node a way to a package index (a NAT gateway; index-url in its pip.conf), or put this file into "
        "a folder of wheels and name it with --find-links"
    )


def _get(
    client: WebClient, url: str, most: int, login_of: str = "", led_by: Reach | None = None
) -> tuple[bytes, Reach]:
    """Return what is at ``url``, and how near the host is that has it. A login in it, or in ``login_of`` on
    the same host, is sent along, and stays behind when the host redirects to its storage."""
    parts = urllib.parse.urlsplit(url)
    asked = urllib.parse.urlsplit(login_of)
    login = parts if parts.username else asked if asked.netloc.rpartition("@")[2] == parts.netloc else parts
    headers = {"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.5, */*;q=0.1"}
    authorization = ""
    if login.username:
        user, password = (urllib.parse.unquote(one or "") for one in (login.username, login.password))
        authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    clean = without_login(url)
    answer, reach = client.open(clean, headers, authorization=authorization, led_by=led_by)
    with answer:
        data = bytes(answer.read(most + 1))
    if len(data) > most:
        raise ValueError(f"{clean} has more than {most} bytes")
    return data, reach


def _link(page: bytes, name: str) -> str | None:
    """Return the link to a file on a page, in JSON (PEP 691) or HTML (PEP 503); None without one."""
    if page.lstrip().startswith(b"{"):
        files = load_object(page).get("files")
        for file in files if isinstance(files, list) else ():
            if isinstance(file, dict) and file.get("filename") == name and isinstance(file.get("url"), str):
                return str(file["url"])
        return None
    links = (found[1] for found in _HREF.finditer(page))
    found = next((link for link in links if name.encode() in link), None)
    return found.decode().replace("&amp;", "&") if found is not None else None


def without_login(url: str) -> str:
    """Return a URL without its user and password.

    >>> without_login("https://me:secret@example.com/simple")
    'https://example.com/simple'
    """
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
