"""Grants of the nodes' identity to jobs: while one is open, the nodes' user reaches the metadata service.

All ranks run as the nodes' user, so what a process of that user can make grants nothing: a request is signed
with the stack's user key, whose private half is on the operator's machine alone. It names one job and its
nodes, and each node grants it once.
"""

from __future__ import annotations

import fcntl
import os
import re

from launch.remote.agent.entry import GRANTED, NAMESPACE, SIGNER

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable

__all__ = ["REQUEST_BYTES", "Grants", "Refused", "read_request"]

REQUEST_BYTES = 1 << 18
"""Longest signed request: a line for each node of the job."""
_SIGNATURE = "-----BEGIN SSH SIGNATURE-----"
_JOB = re.compile(r"identity ([a-z0-9][a-z0-9-]{0,99})")
_SET = ("inet", "ranklift_identity", "granted")
_PATH = "/usr/sbin:/sbin"
_LIMIT_S = 10.0


class Refused(Exception):
    """The request is not granted; the text is for the job's user."""


def read_request(request: str, node: str) -> tuple[str, str, str]:
    """Return the job, the signed text and the signature of a request for this node. Raise :class:`Refused`.

    >>> read_request("identity a-1\\nn0\\nn1\\n-----BEGIN SSH SIGNATURE-----\\nx", "n1")
    ('a-1', 'identity a-1\\nn0\\nn1\\n', '-----BEGIN SSH SIGNATURE-----\\nx')
    """
    text, begin, rest = request.partition(_SIGNATURE)
    first, *nodes = text.split("\n")
    job = _JOB.fullmatch(first)
    if not begin or job is None:
        raise Refused("the request is not a signed one")
    if node not in nodes[:-1]:
        raise Refused(f"the request of job {job[1]} was signed for other nodes than {node}")
    return job[1], text, begin + rest


class Grants:
    """What this node has granted, in a folder of the agent's, and the kernel's set of users."""

    def __init__(self, folder: str, signers: str, user: int) -> None:
        """``folder`` is the agent's alone and outlives a boot, ``signers`` a file of allowed signers of
        ``ssh-keygen``, ``user`` the nodes' user."""
        self._folder, self._granted, self._signers, self._user = folder, f"{folder}/{GRANTED}", signers, user
        os.makedirs(self._granted, mode=0o755, exist_ok=True)

    def verified(self, request: str) -> str:
        """Return the job that a request may be granted to. Raise :class:`Refused`."""
        job, text, signature = read_request(request, os.uname().nodename)
        path = f"{self._folder}/signature.{os.getpid()}"
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(signature)
            verify = ["ssh-keygen", "-Y", "verify", "-f", self._signers, "-I", SIGNER, "-n", NAMESPACE]
            status, words = _run([*verify, "-s", path], text)
        finally:
            os.unlink(path)
        if status:
            raise Refused(f"the signature for job {job} is not the operator's: {words}")
        if os.path.exists(f"{self._granted}/{job}"):
            raise Refused(_again(job))
        return job

    def hold(self, job: str, link: _socket.socket, tell: Callable[[str], None]) -> None:
        """Grant a verified request and ``tell`` why not, "" if granted; end the grant with the connection.
        Raise OSError."""
        lock = self._lock(fcntl.LOCK_SH)
        try:
            why_not = self._add(job)
            tell(why_not)
            link.settimeout(None)
            while not why_not and link.recv(64):
                continue
        finally:
            os.close(lock)
            self.settle()

    def _add(self, job: str) -> str:
        """Put the nodes' user into the set for a job, once; return why not, if not."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            mark = os.open(f"{self._granted}/{job}", flags, 0o644)
        except FileExistsError:
            return _again(job)
        try:
            status, words = _run(["nft", "add", "element", *_SET, f"{{ {self._user} }}"])
            if not status:
                os.write(mark, b"granted\n")
        finally:
            os.close(mark)
        return f"the node's rules cannot be changed: {words}" if status else ""

    def settle(self) -> None:
        """Take the nodes' user out of the set unless a grant is open. Raise OSError where that fails."""
        try:
            lock = self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # somebody holds a grant, or does this
            return
        try:
            status, words = _run(["nft", "flush", "set", *_SET])
        finally:
            os.close(lock)
        if status:
            raise OSError(f"the nodes' user stays in the set: {words}")

    def _lock(self, kind: int) -> int:
        lock = os.open(f"{self._folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, kind)
        except OSError:
            os.close(lock)
            raise
        return lock


def _again(job: str) -> str:
    return f"this node has granted the identity to job {job} before, and grants it once: launch it again"


def _run(argv: list[str], text: str = "") -> tuple[int, str]:
    """Return a command's exit status and what it printed, in one line."""
    import subprocess  # only where a grant is asked for: it would take memory of the agent

    env = {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:{_PATH}"}
    try:
        done = subprocess.run(
            argv,
            input=text.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_LIMIT_S,
            env=env,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return 255, str(error)
    return done.returncode, " ".join(done.stdout.decode("utf-8", "replace").split())[:300]
