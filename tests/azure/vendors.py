"""What NVIDIA, Mellanox and Open MPI would serve, made small: real packages, archives and apt repositories.

A recipe finds them below ``/mirror`` by the paths of the real addresses. Nothing in them drives hardware;
what they bring to a machine has the names and the shape of the real thing, and beside each pinned version
lies a newer one, which a recipe that does not pin would take.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from images.recipe import Download, Recipe

__all__ = ["MIRROR", "build_kernel", "build_mirror", "pinned", "put"]

MIRROR = "/mirror"
UNIT = "[Unit]\nDescription={0}\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
NEWER = "999.1-1"


def build_mirror(root: Path, recipe: Recipe) -> None:
    """Everything that the steps of ``recipe`` will fetch, below ``root``."""
    if recipe.ofed == "doca" and recipe.ofed_file:
        put(root, recipe.ofed_file, doca_host(root / "work"))
    if recipe.ofed == "mlnx" and recipe.ofed_file:
        put(root, recipe.ofed_file, mlnx_ofed(root / "work", recipe.ofed_file.version))
    if recipe.keyring:
        cuda_repository(root / "cuda", recipe)
        listed = "deb [trusted=yes] file:///mirror/cuda ./\n"
        keyring = deb(root / "work", "cuda-keyring", "1.1-1", {"etc/apt/sources.list.d/cuda.list": listed})
        put(root, recipe.keyring, keyring.read_bytes())
    if recipe.topology:
        put(root, recipe.topology, b"<system version='1'/>\n")
    put(root, recipe.mpi_file, hpcx(recipe) if recipe.mpi == "hpcx" else openmpi())


def pinned(recipe: Recipe, root: Path) -> Recipe:
    """``recipe`` with the digests of what lies in the mirror, where it has digests of the real files."""

    def known(file: Download | None) -> Download | None:
        if file is None or file.sha256 is None:
            return file
        content = (root / file.url.removeprefix("https://")).read_bytes()
        return replace(file, sha256=hashlib.sha256(content).hexdigest())

    mpi_file = known(recipe.mpi_file)
    assert mpi_file is not None
    return replace(recipe, keyring=known(recipe.keyring), mpi_file=mpi_file, topology=known(recipe.topology))


def build_kernel(root: Path) -> None:
    """The kernel that runs here as packages of Azure's, in a repository ``ubuntu``."""
    running = os.uname().release
    names = (
        "linux-azure",
        "linux-image-azure-lts-22.04",
        f"linux-image-{running}",
        f"linux-headers-{running}",
    )
    for name in names:
        deb(root / "ubuntu", name, "5.15.0.1-1", {f"usr/share/doc/{name}/here": ""})
    index(root / "ubuntu", "Ubuntu")


def put(root: Path, file: Download, content: bytes) -> None:
    """Lays ``content`` where the machine will look for ``file``."""
    path = root / file.url.removeprefix("https://")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def deb(folder: Path, name: str, version: str, files: Mapping[str, str], **control: str) -> Path:
    """A package with these files (``bin`` in the path: executable)."""
    tree = folder / f".{name}-{version}"
    (tree / "DEBIAN").mkdir(parents=True)
    fields = {"Package": name, "Version": version, "Architecture": "all", "Maintainer": "nobody <n@invalid>"}
    fields |= {key.replace("_", "-").title(): value for key, value in control.items()} | {"Description": name}
    (tree / "DEBIAN/control").write_text("".join(f"{key}: {value}\n" for key, value in fields.items()))
    for path, content in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(content)
        (tree / path).chmod(0o755 if "bin/" in path else 0o644)
    made = folder / f"{name}_{version}_all.deb"
    command = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(made)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return made


def index(folder: Path, label: str) -> None:
    """Makes the packages of ``folder`` an apt repository whose Release file carries ``label``."""
    entries = []
    for package in sorted(folder.glob("*.deb")):
        control = subprocess.run(
            ["dpkg-deb", "--field", str(package)], check=True, capture_output=True, text=True, timeout=60
        ).stdout
        content = package.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        entries.append(f"{control}Filename: ./{package.name}\nSize: {len(content)}\nSHA256: {digest}\n")
    listed = "\n".join(entries).encode()
    (folder / "Packages").write_bytes(listed)
    (folder / "Release").write_text(
        f"Origin: {label}\nLabel: {label}\nSuite: ./\nDate: Sat, 01 Aug 2026 00:00:00 UTC\n"
        f"SHA256:\n {hashlib.sha256(listed).hexdigest()} {len(listed)} Packages\n"
    )


def doca_host(folder: Path) -> bytes:
    """The package that brings a repository of its own to the machine, as NVIDIA's does."""
    repository = folder / "doca"
    deb(
        repository,
        "doca-ofed",
        "3.2.1",
        {"lib/systemd/system/openibd.service": UNIT.format("openibd")},
        depends="dkms",
    )
    deb(repository, "dkms", "99:9-1", {"usr/share/dkms-of-doca": ""})
    index(repository, "DOCA-HOST 3.2.1")
    brought = {"etc/apt/sources.list.d/doca.list": "deb [trusted=yes] file:///usr/share/doca-host/repo ./\n"}
    host = folder / "host"
    made = deb(host, "doca-host", "3.2.1", brought)
    # The repository's own packages are no text: added to the tree by hand, and the package built again.
    inside = host / ".doca-host-3.2.1/usr/share/doca-host/repo"
    inside.mkdir(parents=True)
    for file in repository.iterdir():
        if file.is_file():
            (inside / file.name).write_bytes(file.read_bytes())
    command = [
        "dpkg-deb",
        "--root-owner-group",
        "-Znone",
        "--build",
        str(host / ".doca-host-3.2.1"),
        str(made),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return made.read_bytes()


def mlnx_ofed(folder: Path, version: str) -> bytes:
    """The archive with its installer, which notes how it was called."""
    shown = f"#!/bin/sh\necho MLNX_OFED_LINUX-{version}:\n"
    files = {"usr/bin/ofed_info": shown, "lib/systemd/system/openibd.service": UNIT.format("openibd")}
    package = deb(folder, "mlnx-ofed-all", version, files)
    installer = '#!/bin/sh\nset -e\necho "$@" >>/var/log/mlnxofedinstall\ndpkg -i "$(dirname "$0")"/*.deb\n'
    top = f"MLNX_OFED_LINUX-{version}"
    return archive("gz", {f"{top}/mlnxofedinstall": installer.encode(), f"{top}/a.deb": package.read_bytes()})


def cuda_repository(folder: Path, recipe: Recipe) -> None:
    """NVIDIA's apt repository: driver, toolkit and NCCL, each in the pinned version and in a newer one."""
    assert recipe.cuda and recipe.nccl and recipe.driver
    pin = f"Package: cuda-drivers nvidia-*\nPin: version {recipe.driver}*\nPin-Priority: 1001\n"
    preferences = {"etc/apt/preferences.d/nvidia-driver-pinning": pin}
    deb(folder, f"nvidia-driver-pinning-{recipe.driver}", f"{recipe.driver}-1", preferences)
    for version in (f"{recipe.driver}-1", NEWER):
        for name in ("nvidia-open", "cuda-drivers"):
            deb(folder, name, version, {"usr/bin/nvidia-smi": f"#!/bin/sh\necho {name} {version}\n"})
        for name in ("nvidia-fabricmanager", "nvidia-imex"):
            deb(folder, name, version, {f"lib/systemd/system/{name}.service": UNIT.format(name)})
    for cuda in ("12.9", "13.0"):
        compiler = f"#!/bin/sh\necho release {cuda}\n"
        deb(
            folder,
            f"cuda-toolkit-{cuda.replace('.', '-')}",
            f"{cuda}.1-1",
            {"usr/local/cuda/bin/nvcc": compiler},
        )
    for version in (recipe.nccl, "2.99.1-1+cuda99.0"):
        for name in ("libnccl2", "libnccl-dev"):
            deb(folder, name, version, {f"usr/share/{name}": version})
    index(folder, "NVIDIA CUDA")


def hpcx(recipe: Recipe) -> bytes:
    """HPC-X: an archive with modules, an Open MPI and pkg-config files that name where they were built."""
    top = recipe.mpi_file.url.rpartition("/")[2].removesuffix(".tbz")
    module = f"#%Module1.0\nset hpcx /opt/{top}\nprepend-path PATH $hpcx/ompi/bin\n"
    return archive(
        "bz2",
        {
            f"{top}/modulefiles/hpcx": module.encode(),
            f"{top}/ompi/bin/mpirun": b"#!/bin/sh\necho 'mpirun (Open MPI) 4.1, of HPC-X'\n",
            f"{top}/ucx/lib/pkgconfig/ucx.pc": f"prefix=/build-result/{top}/ucx\n".encode(),
        },
    )


def openmpi() -> bytes:
    """Open MPI's sources: a configure that notes its options, a Makefile that installs an mpirun."""
    configure = """#!/bin/sh
set -e
echo "$@" >/var/log/openmpi-configure
for option in "$@"; do case $option in --prefix=*) prefix=${option#--prefix=} ;; esac; done
printf 'int main(void) { return 0; }\\n' >mpirun.c
printf 'all: mpirun\\nmpirun: mpirun.c\\n\\tg++ -x c -o $@ $<\\n' >Makefile
printf 'install: all\\n\\tinstall -D mpirun %s/bin/mpirun\\n' "$prefix" >>Makefile
"""
    return archive("bz2", {"openmpi-5.0.10/configure": configure.encode()})


def archive(compression: str, files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    mode = "w:gz" if compression == "gz" else "w:bz2"
    with tarfile.open(fileobj=made, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()
