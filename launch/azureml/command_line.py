"""A script and its arguments as one line for bash, in which only the launcher's variables expand."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from launch.azureml.exceptions import UserErrorException
from launch.azureml.missing import Element
from launch.job.spec import LONGEST
from launch.launchers.shell_line import quoted

__all__ = ["joined", "line", "strings"]

_JOB_FILES_OWN = ("${{", "$[[", "{inputs.", "{outputs.")
"""Strings with a meaning in job files, quoted or not; a word that contains one always needs quotes."""


def strings(arguments: Any) -> list[str]:
    """Return azureml-core's ``arguments`` as words: numbers and paths become text.

    >>> strings(["--epochs", 50, "--lr", 1e-05]), strings("--name 'a b'"), strings(None)
    (['--epochs', '50', '--lr', '1e-05'], ['--name', 'a b'], [])

    Raise UserErrorException for unclosed quotes, and for anything that is not a list.
    """
    if arguments is None:
        return []
    if isinstance(arguments, str):
        try:
            return shlex.split(arguments)
        except ValueError as error:
            remedy = "close every quote, or give a list"
            raise UserErrorException("arguments", arguments, str(error).lower(), remedy) from None
    if not isinstance(arguments, list | tuple):
        raise UserErrorException("arguments", repr(arguments), "is not a list", "give the words in a list")
    for argument in arguments:
        if isinstance(argument, Element | type):
            what = argument.__name__ if isinstance(argument, type) else type(argument).__name__
            remedy = "give a text, a number or a dataset"
            raise UserErrorException("arguments", what, "has no value for a command line", remedy)
    return [argument if isinstance(argument, str) else str(argument) for argument in arguments]


def line(words: Sequence[str]) -> str:
    """Return the words quoted for bash, so that each process gets them byte for byte.

    ``$NAME`` and ``${NAME}`` of the launcher's own variables (guide G7) expand in each process; every other
    ``$`` is literal, and so is anything like a job file's ``${{…}}``.

    >>> line(["python", "train.py", "--rank=$LOCAL_RANK", "a b", "$HOME", ""])
    'python train.py --rank="${LOCAL_RANK}" \\'a b\\' \\'$HOME\\' \\'\\''

    Raise UserErrorException for a NUL byte, and for a line above Linux's limit for one argument.
    """
    made = " ".join(quoted(word, _literal) for word in words)
    if "\0" in made:
        raise UserErrorException(
            "arguments", None, "hold a NUL byte, which Linux does not allow in an argument", "remove it"
        )
    try:
        size = len(made.encode())
    except UnicodeEncodeError:
        problem = "hold bytes that are not UTF-8, which a job file cannot hold"
        raise UserErrorException(
            "arguments", None, problem, "put them into a file in source_directory"
        ) from None
    if size > LONGEST:
        remedy = "put them into a file in source_directory"
        raise UserErrorException("arguments", None, f"are {size} bytes, the limit is {LONGEST}", remedy)
    return made


def joined(command: Any) -> str:
    """Return a ``command`` as one line, as in azureml-core: words are joined by spaces and not quoted.

    >>> joined(["torchrun", "--nproc_per_node", 4, "train.py"])
    'torchrun --nproc_per_node 4 train.py'
    """
    return command if isinstance(command, str) else " ".join(strings(command))


def _literal(text: str) -> str:
    made = shlex.quote(text)
    for mark in _JOB_FILES_OWN:
        made = made.replace(mark, f"{mark[0]}''{mark[1:]}")
    return made
