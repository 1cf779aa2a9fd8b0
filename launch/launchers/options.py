"""The options that launchers in a command are given, before the program that they start."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = [
    "TORCHRUNS",
    "Options",
    "accelerate_options",
    "configured",
    "deepspeed_options",
    "mpirun_options",
    "torchrun_options",
]

TORCHRUNS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "torch.distributed.launcher")
"""Launchers with torchrun's options."""

_TORCHRUN_FLAGS = ("standalone", "module", "m", "no-python", "run-path", "use-env", "virtual-local-rank")
_ACCELERATE_FLAGS = (
    *("quiet", "q", "cpu", "multi-gpu", "tpu", "ipex", "enable-cpu-affinity", "same-network", "debug"),
    *("use-deepspeed", "use-fsdp", "use-parallelism-config", "use-megatron-lm", "use-xpu", "use-mps-device"),
    *("dynamo-use-fullgraph", "dynamo-use-dynamic", "dynamo-use-regional-compilation", "fp16"),
    *("module", "m", "no-python", "tpu-cluster", "no-tpu-cluster", "tpu-use-sudo", "downcast-bf16"),
)
_DEEPSPEED_FLAGS = (
    *("module", "no-python", "no-local-rank", "no-ssh", "no-ssh-check", "force-multi", "save-pid"),
    *("elastic-training", "bind-cores-to-rank", "quiet", "q"),
)
_MPIRUN_FLAGS = (
    *("allow-run-as-root", "oversubscribe", "report-bindings", "verbose", "v", "l", "q", "quiet"),
    *("tag-output", "display-map", "display-allocation", "genvall", "genvnone", "prepend-rank", "label"),
    *("disable-cache", "tcp", "gloo", "mpi", "prefix-timestamp", "prefix-output-with-timestamp"),
)
"""Options without a value, of mpirun, srun and horovodrun."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a launcher."""

    given: Mapping[str, str]
    """Values by name, with ``-`` for ``_`` and without the first dashes; "" for those without a value."""
    written: Mapping[str, str]
    """Each as the command has it, its value included."""
    are_all_known: bool
    """Whether no word among them is a variable, which may stand for further options."""
    count: int = 0
    """Words that they are."""

    def first(self, *names: str) -> str | None:
        """Return the first of these names that is given."""
        return next((name for name in names if name in self.given), None)


def torchrun_options(words: Sequence[str]) -> Options:
    """Return what torchrun is given, which takes both spellings of dashes, and names that are cut short.

    >>> torchrun_options(["--nnode=2", "--node_rank", "0", "train.py", "--nnodes", "3"]).given
    {'nnodes': '2', 'node-rank': '0'}
    """
    names = ("nnodes", "node-rank", "standalone", "rdzv-endpoint", "rdzv-backend", "rdzv-conf", "rdzv-id")
    return _read(words, _TORCHRUN_FLAGS, (*names, "master-addr", "master-port"))


def accelerate_options(words: Sequence[str]) -> Options:
    """Return what ``accelerate launch`` is given."""
    names = ("num-machines", "machine-rank", "num-processes", "config-file")
    return _read(words, _ACCELERATE_FLAGS, (*names, "main-process-ip", "main-process-port"))


def configured(text: str) -> dict[str, str]:
    """Return what a config file of accelerate's, in YAML or JSON, says of nodes, by the option for the same.

    >>> configured("num_machines: 2\\nmain_process_ip: null\\n")
    {'num-machines': '2'}
    """
    found = {match[1].replace("_", "-"): match[2] for match in _CONFIGURED.finditer(text)}
    return {name: value for name, value in found.items() if value not in ("", "null", "~")}


def deepspeed_options(words: Sequence[str]) -> Options:
    """Return what deepspeed is given."""
    return _read(words, _DEEPSPEED_FLAGS, ("num-nodes", "node-rank", "hostfile", "include", "master-addr"))


def mpirun_options(words: Sequence[str]) -> Options:
    """Return what an mpirun or its like is given.

    >>> mpirun_options(["-np", "2", "--host", "a,b", "train.py"]).written
    {'np': '-np 2', 'host': '--host a,b'}
    """
    return _read(words, _MPIRUN_FLAGS, ())


_CONFIGURED = re.compile(
    r"""(?:^|[{,])[ \t]*["']?(num_machines|machine_rank|main_process_(?:ip|port))["']?\s*:"""
    r"""[ \t]*["']?([^\s,"'}#]*)""",
    re.MULTILINE,
)
_SHORTEST = 2
"""Letters of a name that is cut short."""


def _read(words: Sequence[str], flags: Sequence[str], names: Sequence[str]) -> Options:
    """Return the options up to the first word that is neither one nor the value of one."""
    given: dict[str, str] = {}
    written: dict[str, str] = {}
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] != "--":
        word = words[place]
        option, equals, value = word.partition("=")
        place += 1
        name = option.lstrip("-").replace("_", "-")
        if option.startswith("--") and len(name) >= _SHORTEST and name not in flags:
            name = next((one for one in names if one.startswith(name)), name)
        if not equals and name not in flags and place < len(words) and not _is_next(words[place]):
            value = words[place]
            word = f"{word} {value}"
            place += 1
        given[name], written[name] = value, word
    is_known = place == len(words) or not words[place].startswith(("$", "`"))
    return Options(given, written, is_known, place + (words[place : place + 1] == ["--"]))


def _is_next(word: str) -> bool:
    """Return whether a word is no option's value: another option, or a script."""
    return (word.startswith("-") and not word[1:].isdecimal()) or word.endswith(".py")
