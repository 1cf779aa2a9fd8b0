"""PyTorch's own launchers, run once on every node (guide G8)."""

from __future__ import annotations

from typing import Literal

from launch.errors import InputError

__all__ = ["TorchLauncher", "torch_launcher_argv"]

TorchLauncher = Literal["torchrun", "launch"]


def torch_launcher_argv(
    launcher: TorchLauncher,
    nodes: int,
    processes_per_node: int,
    command: tuple[str, ...],
    python: str = "python3",
) -> tuple[str, ...]:
    """The launcher's command line for a per-node job; its variables are expanded on each node.

    ``launch`` is the older ``torch.distributed.launch``, with ``--use-env``, so that scripts read
    LOCAL_RANK under both. Static rendezvous with an address: the c10d one hangs on names that do not
    resolve. A ``python`` other than the default brings its own torchrun.

    >>> torch_launcher_argv("torchrun", 4, 2, ("train.py",))[:7]
    ('torchrun', '--nnodes', '4', '--nproc-per-node', '2', '--node-rank', '$NODE_RANK')

    Raises :class:`~launch.errors.InputError` when there is no script to run.
    """
    if not command:
        raise InputError("command", None, "is empty", "give the script to run, e.g. train.py --epochs 3")
    options = (
        *("--nnodes", str(nodes)),
        *("--nproc-per-node", str(processes_per_node)),
        *("--node-rank", "$NODE_RANK"),
        *("--master-addr", "$MASTER_ADDR"),
        *("--master-port", "$MASTER_PORT"),
    )
    script = command if command[0].endswith(".py") else ("--no-python", *command)
    if launcher == "launch":
        return (python, "-u", "-m", "torch.distributed.launch", "--use-env", *options, *script)
    if "/" in python:
        return (python, "-u", "-m", "torch.distributed.run", *options, *script)
    return ("torchrun", *options, *script)
