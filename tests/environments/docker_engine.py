"""A Docker engine of the tests' own, with all its files in one folder; it needs root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Engine", "docker_engine"]

_START_S = 30.0


class Engine:
    """A running engine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = f"unix://{folder}/socket"
        self.program = str(shutil.which("docker", path=f"/usr/bin:{os.environ['PATH']}"))

    def docker(self, *words: str, stdin: int | None = subprocess.DEVNULL) -> str:
        """Runs one command of Docker's."""
        argv = [self.program, "--host", self.host, *words]
        return subprocess.run(argv, stdin=stdin, check=True, capture_output=True, text=True).stdout

    def containers(self) -> list[str]:
        """Every container, whatever its state."""
        return self.docker("ps", "--all", "--quiet").split()

    def save(self, root: Path, tag: str, file: Path) -> None:
        """Makes an image of a folder, and an archive of the image, without which the engine is left."""
        with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
            assert tar.stdout is not None
            self.docker("import", "-", tag, stdin=tar.stdout.fileno())
        self.docker("save", "--output", str(file), tag)
        self.docker("rmi", tag)


@contextmanager
def docker_engine() -> Iterator[Engine]:
    """Starts an engine without a bridge or rules for packets; ends it and removes its files."""
    folder = Path(tempfile.mkdtemp(prefix="docker-"))
    engine = Engine(folder)
    argv = [
        "dockerd",
        "--data-root",
        f"{folder}/data",
        "--exec-root",
        f"{folder}/exec",
        "--host",
        engine.host,
    ]
    argv += ["--pidfile", f"{folder}/pid", "--iptables=false", "--ip6tables=false", "--bridge=none"]
    try:
        with (folder / "log").open("wb") as log:
            daemon = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            until = time.monotonic() + _START_S
            while not (folder / "socket").exists():
                assert daemon.poll() is None and time.monotonic() < until, (folder / "log").read_text()[
                    -3000:
                ]
                time.sleep(0.05)
            yield engine
            for container in engine.containers():
                engine.docker("rm", "--force", container)
        finally:
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
    finally:
        _unmount(folder)
        shutil.rmtree(folder)


def _unmount(folder: Path) -> None:
    """Mounts that a killed engine has left."""
    points = [line.split(" ")[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for point in sorted((point for point in points if point.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", point], check=False)
