"""Stacks of Python processes, by py-spy: a program of its own that reads another process's memory.

With ``--nonblocking`` py-spy only reads: it neither pauses the process nor attaches to it, so that a rank
that is merely slow goes on, and one that is stopped or hangs in the kernel can be read too. A stack that
changes while it is read may be wrong; a hanging one does not change (py-spy 0.4, ``py-spy dump --help``).
"""

from __future__ import annotations

import json
import linecache
import os
import subprocess

from launch.remote.base.files import which

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launch.remote.debug.debug_records import StackFrame, ThreadStack

__all__ = ["PySpy", "is_library", "parse_dump"]

_THREADS = 12
_FRAMES = 32
_TEXT = 160
_KILLED_S = 0.2
_DUMP = 1 << 20
"""Bytes of py-spy's output that are read."""
_LIBRARY = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen", "<string>", "/lib64/python3")
_YAMA = "/proc/sys/kernel/yama/ptrace_scope"


def is_library(file: str) -> bool:
    """Return whether a file is not the user's own.

    >>> is_library("/usr/lib/python3.11/threading.py"), is_library("/home/a/train.py")
    (True, False)
    """
    return any(part in file for part in _LIBRARY)


class PySpy:
    """The program, found at ``given`` below the home folder or in PATH; ``reason`` says why there is none."""

    def __init__(self, given: str) -> None:
        pushed = os.path.join(os.path.expanduser("~"), given) if given else ""
        is_there = bool(pushed) and os.access(pushed, os.X_OK)
        self._path = pushed if is_there else which("py-spy", os.environ.get("PATH", os.defpath))
        self.reason = "" if self._path else "this node has no py-spy: `fab debug` brings it"
        self._sudo = False

    def dump(self, pid: int, seconds: float) -> tuple[list[ThreadStack], str]:
        """Return the threads of a Python process, the main thread first, and why there are none."""
        if not self._path:
            return [], self.reason
        done = self._run(pid, seconds)
        if done is None:
            return [], f"py-spy did not end within {seconds:.1f} s"
        status, output, errors = done
        if status and _is_refused(errors) and not self._sudo:
            self._sudo = True  # Yama lets a process trace its descendants only, and ranks are siblings
            return self.dump(pid, seconds)
        if status:
            return [], _problem(errors, sudo=self._sudo)
        try:
            return parse_dump(output), ""
        except (ValueError, TypeError, LookupError):
            return [], "py-spy printed no stacks"

    def _run(self, pid: int, seconds: float) -> tuple[int, bytes, bytes] | None:
        argv = [*(("sudo", "-n") if self._sudo else ()), str(self._path), "dump", "--json", "--nonblocking"]
        argv += ["--full-filenames", "--pid", str(pid)]
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            return 1, b"", str(error).encode()
        try:
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            try:
                process.communicate(timeout=_KILLED_S)
            except subprocess.TimeoutExpired:
                _close(process)  # it hangs in the kernel, as the process that it reads
            return None
        return process.returncode, output[:_DUMP], errors[:_DUMP]


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _is_refused(errors: bytes) -> bool:
    return b"ermission denied" in errors or b"not permitted" in errors


def _problem(errors: bytes, *, sudo: bool) -> str:
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    first = lines[0][:_TEXT] if lines else "py-spy failed"
    if "python version" in first.lower() or "find python" in first.lower():
        return ""  # not a Python process
    if not sudo:
        return first
    try:
        with open(_YAMA, encoding="ascii") as file:
            scope = file.read().strip()
    except OSError:
        scope = "?"
    return f"{first} (kernel.yama.ptrace_scope is {scope}, and `sudo -n` did not help)"


def parse_dump(output: bytes) -> list[ThreadStack]:
    """Return the threads in py-spy's JSON, bounded. Raise ValueError, TypeError or LookupError for anything
    else."""
    threads: list[ThreadStack] = []
    found = json.loads(output)
    main = next((one for one in found if one["os_thread_id"] == one["pid"]), None)
    for one in sorted(found, key=lambda one: one is not main)[:_THREADS]:
        frames: list[StackFrame] = []
        for frame in one["frames"][:_FRAMES]:
            file, line = str(frame["filename"])[-_TEXT:], int(frame["line"])
            frames.append(
                {
                    "function": str(frame["name"])[:_TEXT],
                    "file": file,
                    "line": line,
                    "text": _line(file, line),
                }
            )
        threads.append({"name": str(one["thread_name"] or "")[:_TEXT], "frames": frames})
    return threads


def _line(file: str, line: int) -> str:
    """Return the line of the user's file; empty for a library's, and a file that is gone, or is no file."""
    if is_library(file) or not os.path.isfile(file) or os.path.getsize(file) > _DUMP:
        return ""
    return linecache.getline(file, line).strip()[:_TEXT]
