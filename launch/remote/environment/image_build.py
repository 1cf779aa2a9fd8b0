"""An image from a Dockerfile: the user's own, or one that adds packages to an image.

``docker build`` or, without a daemon, ``ch-image build --force``, each in its own form of the result. Images
of a registry with a credential, and all of ch-image's (which cannot do without TLS, and asks for passwords),
are pulled by this room's client first: no tool gets a credential.

Packages on top of an image are an environment of their own in it, as Azure ML makes it of ``conda_file``
(learn.microsoft.com azure/machine-learning/how-to-manage-environments-v2): packages of the image's Python are
not visible in it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from launch.remote.base.files import replace_file
from launch.remote.environment import build
from launch.remote.environment.build import Report
from launch.remote.environment.conda.conda_packages import COMPILE, PROGRAM, cuda_version, rattler_request
from launch.remote.environment.conda.conda_tools import PYTHON, rattler_wheel
from launch.remote.environment.dockerfile import FROM, bases
from launch.remote.environment.image_pull import Pulled, open_registry, pull, tag_of, unpack, write_archive
from launch.remote.environment.image_reference import ImageError, Reference, parse_reference
from launch.remote.environment.image_registry import Registry, architecture
from launch.remote.environment.index import certificates, read_index
from launch.remote.environment.request import FORMS
from launch.remote.environment.uv import find_uv
from launch.remote.store.store import Store

if TYPE_CHECKING:
    from launch.remote.environment.request import EnvironmentRequest

__all__ = ["BUILDERS", "build_image", "check_packages", "packages_of"]

BUILDERS = {"docker": "docker", "charliecloud": "ch-image"}
"""By runtime: the program that builds for it."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH in an image that sets none, as Docker has it."""
_WORK, _CONTEXT, _STORAGE, _LAYERS = ".build", "context", "storage", "layers"
_ENVIRONMENT, _PYTHONS = "/opt/ranklift/environment", "/opt/ranklift/python"
_SENT, _CACHE = "/opt/ranklift/packages", "/opt/ranklift/cache"
_CERTIFICATES = "certificates.pem"
"""Those of this node: py-rattler does not start in an image without any."""
_PASSWORD = re.compile(r"://[^/\s@]+@")
_PACKAGES = ("requirements", "constraints", "python", "conda")


def packages_of(request: EnvironmentRequest) -> list[str]:
    """Return what the request adds to an image; nothing where it adds nothing."""
    parts = [str(request[key]) for key in _PACKAGES]  # type: ignore[literal-required]
    if not any(parts):
        return []
    driver = [cuda_version()] if request["conda"] else []
    return [*parts, *request["find_links"], *request["channels"], *driver]


def check_packages(request: EnvironmentRequest) -> None:
    """Refuse packages that would leave a password in the image. Raise :class:`ImageError`."""
    lines = request["requirements"] + "\n" + request["constraints"]
    if packages_of(request) and _PASSWORD.search(lines):
        raise ImageError(
            "packages on top of an image: the password in a URL would stay in the image; send the wheels "
            "with --find-links, or take an image that has the packages"
        )


def build_image(request: EnvironmentRequest, folder: str, lock: int, report: Report) -> bytes:
    """Make the runtime's form of the image in ``folder``; return its configuration document. Raise
    :class:`~launch.remote.environment.build.Failed` or OSError."""
    work = os.path.join(folder, _WORK)
    if request["kind"] == "build":
        context = Store().path(request["context"])
        file = os.path.join(context, request["dockerfile"])
    else:
        context = os.path.join(work, _CONTEXT)
        os.makedirs(context)
        file = _write_context(request, context, report)
    try:
        with open(file, encoding="utf-8") as stream:
            images = list(dict.fromkeys(bases(stream)))
    except FileNotFoundError:
        why = "the folder of the build, without what .amlignore leaves out, has no such file"
        raise ImageError(f"dockerfile_path = {request['dockerfile']}: {why}") from None
    builder = _build_docker if request["runtime"] == "docker" else _build_charliecloud
    config = builder(request, images, context, file, folder, lock, report)
    shutil.rmtree(work, ignore_errors=True)
    return config


def _pull(registry: Registry, folder: str, report: Report) -> Pulled:
    layers = os.path.join(folder, _WORK, _LAYERS)
    os.makedirs(layers)
    return pull(registry, layers, report)


def _local_name(reference: Reference) -> str:
    """Return the name of an image that is loaded: it has no digest but in the tag."""
    tag = reference.digest.partition(":")[2] or reference.tag
    return f"{reference.registry}/{reference.repository}:{tag}"


def _renamed(file: str, names: Mapping[str, str], folder: str) -> str:
    """Write the Dockerfile with other names of its images; return its path."""
    with open(file, encoding="utf-8") as stream:
        lines = list(stream)
    for number, line in enumerate(lines):
        found = FROM.fullmatch(line)
        if found and found["image"] in names:
            lines[number] = line[: found.start("image")] + names[found["image"]] + line[found.end("image") :]
    path = os.path.join(folder, _WORK, "Dockerfile")
    replace_file(path, "".join(lines).encode())
    return path


def _build_docker(
    request: EnvironmentRequest,
    images: Sequence[str],
    context: str,
    file: str,
    folder: str,
    lock: int,
    report: Report,
) -> bytes:
    form, tag = os.path.join(folder, FORMS["docker"]), tag_of(folder)
    loaded = {}
    for image in images:
        registry = open_registry(request, parse_reference(image))
        if registry.has_secret:
            loaded[image] = _local_name(registry.reference)
            write_archive(_pull(registry, folder, report), loaded[image], form)
            build.run("loading an image", ["docker", "load", "--quiet", "--input", form], os.environ, report)
            os.unlink(form)
            shutil.rmtree(os.path.join(folder, _WORK, _LAYERS))
    if any("@" in image for image in loaded):
        file = _renamed(file, loaded, folder)
    argv = ["docker", "build", "--file", file, "--tag", tag, context]
    build.run("docker build", argv, os.environ, report, keep_open=[lock])
    argv = ["docker", "save", "--output", form, tag]
    build.run("docker save", argv, os.environ, report, keep_open=[lock])
    with tarfile.open(form) as archive:
        (entry,) = json.loads(_member(archive, "manifest.json"))
        return _member(archive, entry["Config"])


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    stream = archive.extractfile(name)
    if stream is None:
        raise ImageError(f"`docker save` wrote no {name}")
    return stream.read()


def _build_charliecloud(
    request: EnvironmentRequest,
    images: Sequence[str],
    context: str,
    file: str,
    folder: str,
    lock: int,
    report: Report,
) -> bytes:
    storage, work = os.path.join(folder, _WORK, _STORAGE), os.path.join(folder, _WORK)
    os.makedirs(work, exist_ok=True)
    env = {**os.environ, "USER": os.environ.get("USER", "user")}  # without which its programs do not start
    program = ["ch-image", "--no-cache", "--storage", storage]
    # ch-image parses no digest in FROM.
    names = {image: _local_name(parse_reference(image)) for image in images if "@" in image}
    for image in images:
        pulled = _pull(open_registry(request, parse_reference(image)), folder, report)
        unpacked = unpack(pulled, os.path.join(work, "image"), report)
        _write_metadata(unpacked.folder("ch"), pulled.config)
        argv = [*program, "import", unpacked.path, names.get(image, image)]
        build.run("importing an image", argv, env, report, keep_open=[lock])
        shutil.rmtree(unpacked.path)
        shutil.rmtree(os.path.join(work, _LAYERS))
    if names:
        file = _renamed(file, names, folder)
    argv = [*program, "build", "--force", "--tag", "ranklift", "--file", file, context]
    build.run("ch-image build", argv, env, report, keep_open=[lock])
    root = os.path.join(folder, FORMS["charliecloud"])
    os.rename(os.path.join(storage, "img", "ranklift"), root)
    with open(os.path.join(root, "ch", "metadata.json"), encoding="utf-8") as stream:
        found = json.load(stream)
    config = {
        "Env": [f"{name}={value}" for name, value in found["env"].items()],
        "WorkingDir": found["cwd"],
    }
    return json.dumps({"architecture": architecture(), "os": "linux", "config": config}).encode()


def _write_metadata(folder: str, config: bytes) -> None:
    """Write what ch-image keeps of an image's configuration, which its import takes over."""
    found = json.loads(config).get("config") or {}
    pairs = (entry.partition("=") for entry in found.get("Env") or ())
    metadata = {
        "arch": architecture(),
        "arg": {},
        "cwd": str(found.get("WorkingDir") or "/"),
        "env": {"PATH": _PATH, **{name: value for name, _, value in pairs}},
        "history": [],
        "labels": {},
        "shell": ["/bin/sh", "-c"],
        "volumes": [],
    }
    replace_file(os.path.join(folder, "metadata.json"), json.dumps(metadata).encode())


def _write_context(request: EnvironmentRequest, context: str, report: Report) -> str:
    """Write the Dockerfile that adds the request's packages to its image, with its files; return its path."""
    store = Store()
    for number, snapshot in enumerate(request["find_links"]):
        shutil.copytree(store.path(snapshot), os.path.join(context, "packages", f"wheels{number}"))
    os.makedirs(os.path.join(context, "packages"), exist_ok=True)
    texts = {"requirements.txt": request["requirements"], "constraints.txt": request["constraints"]}
    index = read_index(request["requirements"], os.environ)
    indexes = [read_index("", os.environ), index]
    sent = [store.path(snapshot) for snapshot in request["find_links"]]
    uv = find_uv(os.path.join(store.root, "tools"), indexes, sent, report)
    shutil.copy(uv, os.path.join(context, "packages", "uv"))
    if request["conda"]:
        folders = [f"{_SENT}/channel{number}" for number in range(len(request["channels"]))]
        for snapshot, folder in zip(request["channels"], folders):  # noqa: B905  (Python 3.8)
            shutil.copytree(store.path(snapshot), os.path.join(context, "packages", os.path.basename(folder)))
        texts["conda.json"] = rattler_request(request, folders, _ENVIRONMENT, _CACHE).decode()
        name, wheel = rattler_wheel(indexes, sent, report)
        replace_file(os.path.join(context, "packages", name), wheel, mode=0o644)
        shutil.copy(PROGRAM, os.path.join(context, "packages"))
        shutil.copy(certificates(index), os.path.join(context, "packages", _CERTIFICATES))
    for name, text in texts.items():
        replace_file(os.path.join(context, "packages", name), text.encode() + b"\n", mode=0o644)
    file = os.path.join(context, "Dockerfile")
    replace_file(file, _dockerfile(request).encode(), mode=0o644)
    return file


def _dockerfile(request: EnvironmentRequest) -> str:
    """Return the Dockerfile that adds packages to an image."""
    reference = parse_reference(request["reference"])
    uv, python = f"{_SENT}/uv", f"{_ENVIRONMENT}/bin/python"
    venv = f"UV_PYTHON_INSTALL_DIR={_PYTHONS} {uv} venv --quiet --no-project --python"
    pip = f"{uv} pip install --no-cache --python"
    if request["conda"]:
        own = f"{_PYTHONS}/py-rattler"
        notice = (
            f"for file in {_ENVIRONMENT}/etc/conda/activate.d/*.sh; do [ ! -e $file ] || "
            "echo note: ranks in this image do not get what $file sets; done"
        )
        make = [
            f"{venv} '{PYTHON}' {own}",
            f"{pip} {own}/bin/python --quiet --offline --no-deps {_SENT}/py_rattler-*.whl",
            f"SSL_CERT_FILE={_SENT}/{_CERTIFICATES} CONDA_OVERRIDE_CUDA='{cuda_version()}' {own}/bin/python "
            f"-I {_SENT}/{os.path.basename(PROGRAM)} < {_SENT}/conda.json && rm -rf {_CACHE}",
            notice,
        ]
        named, options = "CONDA_PREFIX", "--break-system-packages"
    else:
        make = [f"{venv} {repr(request['python']) if request['python'] else 'python3'} {_ENVIRONMENT}"]
        named, options = "VIRTUAL_ENV", "--compile-bytecode"
    if request["requirements"] or not request["conda"]:
        links = (f" --find-links {_SENT}/wheels{number}" for number in range(len(request["find_links"])))
        constraint = f" --constraint {_SENT}/constraints.txt" if request["constraints"] else ""
        more = "".join(links) + constraint
        make.append(f"{pip} {python} {options}{more} --requirement {_SENT}/requirements.txt")
    if request["conda"]:
        make.append(f"{python} -I -c '{COMPILE}' {_ENVIRONMENT}/lib")
    return "\n".join(
        [
            f"FROM {replace(reference, tag='') if reference.digest else reference}",
            f"COPY packages {_SENT}",
            *(f"RUN {line}" for line in make),
            f"ENV {named}={_ENVIRONMENT} PATH={_ENVIRONMENT}/bin:$PATH",
            "",
        ]
    )
