"""Entry on a node: ``python3 -I -S ~/.ranklift/remote/<hash>/__main__.py <what> ...``.

The folder is no importable package (its name is a hash), so the package is made known first. Each
branch imports only its own modules: one interpreter starts per rank under MPI, and 64 rehearsed nodes
share this machine's cores.
"""

from __future__ import annotations

import os
import sys

if "launch.remote" not in sys.modules:
    for name, path in (("launch", []), ("launch.remote", [__file__.rpartition("/")[0] or "."])):
        module = type(sys)(name)
        module.__path__ = path
        sys.modules[name] = module


def main(arguments: list[str]) -> int:
    """Runs what the first argument names; gives the process's exit status."""
    what = arguments[0] if arguments else ""
    if what == "rank":
        from launch.remote.node import runner

        os._exit(runner.run_rank())  # without tidying up an interpreter that nobody uses again
    if what == "node":
        from launch.remote.node import runner

        os._exit(runner.run_node())
    from launch.remote import cli

    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
