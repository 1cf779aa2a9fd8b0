"""The environment and the arguments of each rank of a job."""

from __future__ import annotations

import os

from launch.remote.base.files import expand_home, python_folder, which

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from launch.remote.base.payloads import RunnerSpec

__all__ = ["environment", "expand", "mpi_numbers", "network", "node_environment"]


def environment(spec: RunnerSpec, own: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """Return one rank's environment; of defaults, node, job, rank (``own``) and user, the later one wins.

    Set variables of ``files`` only where the file exists on this node: images differ in their files.
    """
    dropped = tuple(spec["drop"])
    env = dict(spec["defaults"])
    env.update({key: path for key, path in spec["files"].items() if os.path.exists(path)})
    env.update({key: value for key, value in inherited.items() if not (dropped and key.startswith(dropped))})
    env.update(spec["env"])
    env.update({key: expand_home(path) for key, path in spec["paths"].items()})
    env.update(own)
    env.update(spec["user_env"])
    _add_python(env, spec)
    return env


def node_environment(
    spec: RunnerSpec, inherited: Mapping[str, str], dropped: tuple[str, ...]
) -> dict[str, str]:
    """Return the environment of the setup line and the checks, without a rank's variables.

    ``dropped`` are the prefixes of a launcher's own variables.
    """
    kept = {key: value for key, value in inherited.items() if not key.startswith(dropped)}
    return environment(spec, {}, kept)


def network(spec: RunnerSpec, inherited: Mapping[str, str]) -> str:
    """Return the mark of the node's networks; empty for a job of which nobody asks it."""
    if not spec["network"]:
        return ""
    from launch.remote.probe.network_mark import network_mark  # loads OpenSSL

    return network_mark(inherited, spec["user_env"])


def _add_python(env: dict[str, str], spec: RunnerSpec) -> None:
    path = env.get("PATH", os.defpath)
    folder = python_folder(spec["python"])
    if folder:
        env["PATH"] = f"{folder}/bin:{path}"
        env.pop("PYTHONHOME", None)
        env.pop("VIRTUAL_ENV", None)
        if "CONDA_PREFIX" not in spec["env"]:
            env["VIRTUAL_ENV"] = folder
    elif spec["environment"]["runtime"] != "bare" or not which("python", path):
        env["PATH"] = f"{path}:{expand_home(spec['folder'])}/bin"


def expand(argv: list[str], names: list[str], env: Mapping[str, str]) -> list[str]:
    """Return the arguments with ``$NAME`` and ``${NAME}`` replaced for the launcher's own variables alone.

    Any other ``$`` is the user's and stays.

    >>> expand(["--rank=$RANK", "${RANK}a", "$RANKS", "$HOME"], ["RANK"], {"RANK": "3", "HOME": "/"})
    ['--rank=3', '3a', '$RANKS', '$HOME']
    """
    wanted = {name: env[name] for name in names if name in env}
    return [_expand(argument, wanted) if "$" in argument else argument for argument in argv]


def _expand(text: str, values: Mapping[str, str]) -> str:
    head, *rest = text.split("$")
    parts = [head]
    for part in rest:
        if part.startswith("{") and part[1:].partition("}")[0] in values and "}" in part:
            name, _, after = part[1:].partition("}")
            parts.append(values[name] + after)
            continue
        length = 0
        while length < len(part) and (
            part[length] == "_" or (part[length].isalnum() and part[length].isascii())
        ):
            length += 1
        if part[:length] in values:
            parts.append(values[part[:length]] + part[length:])
        else:
            parts.append("$" + part)
    return "".join(parts)


def mpi_numbers(variables: list[str]) -> tuple[int, int]:
    """Return this rank's number and local rank from the variables of the MPI that started it.

    Set Open MPI's names for the numbers too, so that one script serves every MPI. The descriptor PMI_FD that
    hydra passes stays open here and in the rank.
    """
    env = os.environ
    numbers = [env.get(variable, "") for variable in variables]
    numbers[2] = numbers[2] or "-1"
    for place, name in enumerate(("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")):
        env["OMPI_COMM_WORLD_" + name] = numbers[place]
    return int(numbers[0]), int(numbers[2])
