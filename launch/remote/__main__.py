"""Entry on a node: ``python3 -I -S ~/.ranklift/remote/<hash>/__main__.py COMMAND ...``.

The folder's name is a hash, which cannot be imported, so the package is registered first. Each command
imports only its own modules: under MPI one interpreter starts per rank, and 64 rehearsed nodes share this
machine's cores. cloud-init installs this file a second time, as ``/usr/local/lib/ranklift/watch.py``, with
the modules of :mod:`launch.remote.agent`: under that name its arguments are the agent's.
"""

from __future__ import annotations

import gc
import os
import sys

if "launch.remote" not in sys.modules:
    for name, path in (("launch", []), ("launch.remote", [__file__.rpartition("/")[0] or "."])):
        module = type(sys)(name)
        module.__path__ = path
        sys.modules[name] = module


def main(arguments: list[str]) -> int:
    """Run the command that the first argument names; return the process's exit status."""
    gc.set_threshold(50_000)  # with Python's 700, collections in vain are a tenth of what imports take
    if __file__.endswith("/watch.py"):
        from launch.remote.agent import daemon

        return daemon.main(arguments)
    what = arguments[0] if arguments else ""
    if what == "rank":
        from launch.remote.node import runner

        os._exit(runner.run_rank())  # without tidying up an interpreter that nobody uses again
    if what == "node":
        from launch.remote.node import runner

        os._exit(runner.run_node())
    if what == "look":
        from launch.remote.health import look

        return look.main(arguments[1])
    if what == "rank-stacks":
        from launch.remote.debug import rank_stacks

        return rank_stacks.main(arguments[1])
    from launch.remote import cli

    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
