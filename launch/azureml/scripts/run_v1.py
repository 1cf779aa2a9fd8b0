"""The program ``ranklift``: ``ranklift run-v1 submit.py`` runs a script written for Azure ML's SDK v1."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import NoReturn

from launch.azureml.notices import report, write_line
from launch.azureml.scripts.azureml_modules import serve_azureml
from launch.azureml.scripts.script_uses import lacking_uses
from launch.errors import InputError, RankliftError

__all__ = ["main"]

_USAGE = """\
usage: ranklift run-v1 SCRIPT [ARGUMENT ...]

Run a Python script that submits jobs with Azure ML's SDK v1 (azureml-core), unchanged, on your own cluster.
See docs/azureml-v1.md."""
_WRONG = 2
_INTERRUPTED = 130


def main() -> None:
    """Run the program on this process's command line. The exit status is the script's, and 2 where nothing of
    it was run."""
    words = sys.argv[1:]
    if words[:1] in (["-h"], ["--help"]) or words[1:2] in (["-h"], ["--help"]):
        write_line(_USAGE, sys.stdout)
        return
    if len(words) < 2 or words[0] != "run-v1":  # noqa: PLR2004
        write_line(_USAGE, sys.stderr)
        sys.exit(_WRONG)
    try:
        _run_script(words[1], words[2:])
    except InputError as error:
        write_line(f"error: {error}", sys.stderr)
        sys.exit(_WRONG)


def _run_script(script: str, arguments: Sequence[str]) -> None:
    """Run a script as ``__main__``, with Ranklift's classes in the place of azureml-core's.

    Exit with 2 before it runs where it certainly uses a class that Ranklift lacks. Raise InputError for what
    is not a Python script.
    """
    path = Path(script).absolute()
    tree = _parsed(script, path)
    serve_azureml()
    uses = lacking_uses(tree)
    certain = [use for use in uses if use.is_certain]
    for use in certain:
        write_line(f"error: {script}:{use.line}: {use.text}; nothing was started", sys.stderr)
    if certain:
        sys.exit(_WRONG)
    report(f"{script}:{use.line}: {use.text}; the script ends if it comes there" for use in uses)
    main_module = ModuleType("__main__")
    main_module.__dict__.update(__file__=str(path), __builtins__=__builtins__)
    sys.modules["__main__"] = main_module
    sys.argv[:] = [script, *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    code = compile(tree, str(path), "exec", dont_inherit=True)
    try:
        exec(code, main_module.__dict__)  # noqa: S102  (the user's own program)
    except SystemExit:
        raise
    except KeyboardInterrupt:
        write_line("interrupted", sys.stderr)
        sys.exit(_INTERRUPTED)
    except RankliftError as error:
        write_line(f"error: {_place(script, path, error.__traceback__)}: {error}", sys.stderr)
        sys.exit(1)
    except BaseException as error:  # noqa: BLE001  (the script's, whatever it is)
        assert error.__traceback__ is not None  # noqa: S101  it was raised here
        _end(error.with_traceback(error.__traceback__.tb_next))


def _parsed(script: str, path: Path) -> ast.Module:
    if path.suffix == ".ipynb":
        remedy = "`jupyter nbconvert --to script` makes one of it"
        raise InputError("script", script, "is a notebook, not a Python script", remedy)
    try:
        source = path.read_bytes()
    except OSError as error:
        raise InputError(
            "script", script, f"cannot be read: {error.strerror}", "name a Python script"
        ) from None
    try:
        return ast.parse(source, str(path))
    except SyntaxError as error:
        _end(error.with_traceback(None))
    except ValueError as error:
        raise InputError("script", script, f"is not Python: {error}", "name a Python script") from None


def _end(error: BaseException) -> NoReturn:
    """End as Python ends a script that raises."""
    sys.excepthook(type(error), error, error.__traceback__)
    sys.exit(1)


def _place(script: str, path: Path, traceback: TracebackType | None) -> str:
    """Return the innermost line of the user's own code, which is what called Ranklift's."""
    ours = str(Path(__file__).parents[2])
    place = script
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if file == str(path) or not file.startswith((ours, "<", sys.prefix, sys.base_prefix)):
            place = f"{script if file == str(path) else file}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place
