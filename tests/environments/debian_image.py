"""A small image for ranks: Debian with Python, mpi4py and Open MPI, made once and kept."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

__all__ = ["VARIABLES", "image_archive", "unpack"]

SUITE = "bookworm"
PACKAGES = ("openmpi-bin", "python3", "python3-mpi4py")
VARIABLES = ("PATH=/opt/tool/bin:/usr/bin:/bin", "GREETING=from the image", "HOME=/root", "LANG=C.UTF-8")
"""What the image's configuration sets."""
_KEPT = Path(pwd.getpwuid(os.getuid()).pw_dir, ".cache/ranklift/images")


def image_archive() -> Path:
    """The image's files as one archive; 290 MB, which take a minute the first time."""
    digest = hashlib.sha256(" ".join((SUITE, *PACKAGES)).encode()).hexdigest()[:16]
    archive = _KEPT / f"debian-{digest}.tar"
    _KEPT.mkdir(parents=True, exist_ok=True)
    with (_KEPT / f"debian-{digest}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            with tempfile.TemporaryDirectory() as folder:
                made = Path(folder, "image.tar")
                subprocess.run(
                    ["mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(made)],
                    check=True,
                    stdin=subprocess.DEVNULL,
                )
                shutil.move(made, archive.with_suffix(".new"))
            archive.with_suffix(".new").rename(archive)
    return archive


def unpack(folder: Path) -> Path:
    """Unpacks the image's files, without devices, as nodes have them; returns the folder."""
    folder.mkdir()
    subprocess.run(["tar", "-xf", str(image_archive()), "-C", str(folder), "--exclude=./dev/*"], check=True)
    subprocess.run(["chmod", "-R", "u+w", str(folder)], check=True)
    tool = folder / "opt/tool/bin/tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho a tool of the image\n")
    tool.chmod(0o755)
    mpirun = folder / "opt/other-mpi/bin/mpirun"
    mpirun.parent.mkdir(parents=True)
    mpirun.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 5.0.3'\n")
    mpirun.chmod(0o755)
    return folder
