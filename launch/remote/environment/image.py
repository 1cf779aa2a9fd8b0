"""A container image as a job's environment: made once by the head for the runtime that the nodes have.

An image is known by its digest. A tag is looked up at every launch; a registry that does not answer is an
error, which names the digest that this head has, so that the user may ask for that one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

from launch.remote.base.files import replace_file, which
from launch.remote.environment.image_build import BUILDERS, build_image, check_packages, packages_of
from launch.remote.environment.image_pull import open_registry, pull, write_config, write_form
from launch.remote.environment.image_reference import ImageError, Reference, Unreachable, parse_reference
from launch.remote.environment.image_registry import architecture
from launch.remote.environment.request import FORMS

if TYPE_CHECKING:
    from launch.remote.environment.build import Report
    from launch.remote.environment.request import EnvironmentRequest

__all__ = ["choose_runtime", "identity", "make"]

_COMMANDS = {
    "docker": ("docker",),
    "enroot": ("enroot", "mksquashfs", "squashfuse", "fuse-overlayfs"),
    "charliecloud": ("ch-run",),
}
"""By runtime: what has to be on PATH."""
_DOCKER_ANSWER_S = 20.0
_LAYERS, _NAME = ".layers", "image.json"


def identity(request: EnvironmentRequest, report: Report) -> str:
    """Return what makes one image another one: its digest, this machine's architecture, the runtime's form.

    Set the request's runtime, and the digest of its reference: a tag means what the registry answers now.
    Raise :class:`ImageError`.
    """
    is_built = request["kind"] == "build" or bool(packages_of(request))
    check_packages(request)
    request["runtime"] = choose_runtime(request["runtime"], is_built)
    machine = [architecture(), FORMS[request["runtime"]]]
    if request["kind"] == "build":
        return "\n".join(["build", request["context"], request["dockerfile"], *machine])
    reference = parse_reference(request["reference"])
    if not reference.digest:
        report(f"looking up {reference}")
        try:
            digest = open_registry(request, reference).digest()
        except Unreachable as error:
            raise ImageError(f"{error}{_earlier(reference)}") from None
        reference = replace(reference, digest=digest)
        request["reference"] = reference.written
    return "\n".join(["image", reference.digest, *machine, *packages_of(request)])


def make(request: EnvironmentRequest, folder: str, lock: int, report: Report) -> None:
    """Make the image in ``folder``, its final path. Raise OSError, or
    :class:`~launch.remote.environment.build.Failed`."""
    if request["kind"] == "build" or packages_of(request):
        os.makedirs(folder)
        write_config(folder, build_image(request, folder, lock, report))
        return
    reference = parse_reference(request["reference"])
    layers = os.path.join(folder, _LAYERS)
    os.makedirs(layers)
    pulled = pull(open_registry(request, reference), layers, report)
    write_form(request["runtime"], pulled, folder, lock, report)
    write_config(folder, pulled.config)
    known = {"reference": str(replace(reference, digest="")), "digest": reference.digest}
    replace_file(os.path.join(folder, _NAME), json.dumps(known).encode())
    shutil.rmtree(layers)


def choose_runtime(wanted: str, is_built: bool = False) -> str:
    """Return the runtime ``wanted``, else the first that works here and, if one ``is_built``, builds images.

    Raise :class:`ImageError`.
    """
    problems = []
    for runtime in [wanted] if wanted else FORMS:
        problem = _problem(runtime, is_built)
        if not problem:
            return runtime
        problems.append(f"{runtime}: {problem}")
    what = "build images for containers" if is_built else "run containers"
    raise ImageError(
        f"{os.uname().nodename} cannot {what} ({'; '.join(problems)}): take an image of nodes with "
        "one of these, such as Azure's HPC images, which have Docker"
    )


def _problem(runtime: str, is_built: bool) -> str:
    """Return why this node cannot use a runtime, or ""."""
    if is_built and runtime not in BUILDERS:
        return "it builds no images"
    path = os.environ.get("PATH", os.defpath)
    wanted = [*_COMMANDS[runtime], *([BUILDERS[runtime]] if is_built else [])]
    missing = [command for command in dict.fromkeys(wanted) if not which(command, path)]
    if missing:
        return f"no {' or '.join(missing)} on PATH"
    if runtime != "docker":
        return ""
    argv = ["docker", "version", "--format", "{{.Server.Version}}"]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_DOCKER_ANSWER_S, check=False)
    except subprocess.TimeoutExpired:
        return f"its daemon does not answer within {_DOCKER_ANSWER_S:g} s"
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return "" if done.returncode == 0 else (lines or ["its daemon does not answer"])[-1]


def _earlier(reference: Reference) -> str:
    """Return which image of this name this head has, as the rest of a sentence."""
    folder = os.path.join(os.path.expanduser("~"), ".ranklift", "environments")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        try:
            with open(os.path.join(folder, name, _NAME), encoding="utf-8") as stream:
                known = json.load(stream)
        except (OSError, ValueError):
            continue
        if known["reference"] == str(reference) and os.path.exists(os.path.join(folder, name + ".manifest")):
            return (
                f"; to run the image of that name that is here, ask for {reference.written}@{known['digest']}"
            )
    return ""
