"""Another user's program, which knows a rehearsal's ports and nothing else."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

NOBODY = 65534
IS_ROOT = os.getuid() == 0
"""Only root can call as somebody else; everybody can call without the token."""
_SCRIPT = """
import socket, sys, time
port, times, keep = (int(word) for word in sys.argv[1:])
request, held = sys.stdin.buffer.read(), []
for _ in range(times):
    one = socket.create_connection(("127.0.0.1", port))
    try:
        one.sendall(request)
    except OSError:
        pass
    if keep:
        held.append(one)
    else:
        one.close()
print("sent", flush=True)
if held and request:
    time.sleep(1)
for one in held:
    one.settimeout(10)
    try:
        sys.stdout.buffer.write(one.recv(1 << 16))
    except OSError as error:
        print(type(error).__name__)
"""


def send(port: int, request: bytes, *, times: int = 1, keep: bool = False, uid: int = NOBODY) -> str:
    """Send a request so many times and close at once, or ``keep`` the connections and return the answers."""
    drop = ["/usr/bin/setpriv", f"--reuid={uid}", "--clear-groups"] if IS_ROOT and uid != os.getuid() else []
    argv = [*drop, os.path.realpath(sys.executable), "-I", "-S", "-c", _SCRIPT]
    argv += [str(port), str(times), str(int(keep))]
    done = subprocess.run(argv, input=request, capture_output=True, check=True, cwd="/", timeout=120)
    sent, _, answers = done.stdout.decode(errors="replace").partition("\n")
    assert sent == "sent"
    return answers


def put(path: str, body: str, **headers: str) -> bytes:
    """One PUT, as it goes over the line."""
    lines = [f"PUT {path} HTTP/1.1", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", body]).encode()


async def recorded_call(method: str, request: object) -> bytes:
    """Everything that a gRPC client sends for one call to a provider."""
    got, whole = bytearray(), asyncio.Event()

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\0\0\0\4\0\0\0\0\0\0\0\0\4\1\0\0\0\0")  # its SETTINGS, and that ours are known
        while block := await reader.read(1 << 16):
            got.extend(block)
            if method.encode() in got and got[-1:] != b"\0":
                whole.set()
        writer.close()

    server = await asyncio.start_server(record, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = getattr(provider_pb2_grpc.ResourceProviderStub(channel), method)(request)
            await asyncio.wait_for(whole.wait(), 20)
            await asyncio.sleep(0.2)  # the message follows its headers
            sent = bytes(got)
            call.cancel()
    finally:
        server.close()  # and no wait for gRPC's connection: Python 3.12 and later wait for ever
    return sent
