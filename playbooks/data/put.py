"""``fab data.put`` and ``fab data.get``: files between this machine and the stack's storage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from launch.data.data_spec import BlobAddress
from launch.errors import InputError
from launch.numbers import counted
from launch.received_names import is_obeyed
from launch.remote.base.messages import size
from playbooks.cli import output
from playbooks.cli.access import ALLOW_HELP, access_flags
from playbooks.cli.task import command, open_from
from playbooks.data.stack_storage import (
    CONTAINER_HELP,
    OWN_SAS_HELP,
    PATH_HELP,
    at_most_one,
    container_of,
    data_address,
)
from playbooks.project import Stack

if TYPE_CHECKING:
    from playbooks.data.blob_transfer import Moved

__all__ = ["get", "put", "upload"]


@command(
    "put",
    called="data.put",
    example="fab data.put ~/imagenet",
    help={
        "source": "a file or a folder of this machine; links within it are followed",
        "allow-path": ALLOW_HELP,
        "path": f"where it goes: {PATH_HELP} (default: the source's name)",
        "container": CONTAINER_HELP,
        "sas-file": OWN_SAS_HELP,
    },
    iterable=["allow_path", "path"],
    positional=["source", "path"],
)
def put(  # noqa: PLR0913, PLR0917  (each is an option)
    context: Context,
    source: str,
    path: list[str] | None = None,
    container: str = "data",
    sas_file: str | None = None,
    allow_path: list[str] | None = None,
    stack: str | None = None,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Upload a file or a folder into the stack's storage. What is there already is not sent again.

    Every blob is whole or not there; an upload that was cut off goes on where it stopped.
    """
    access, root = access_flags(None, allow_path), Path(source).expanduser()
    chosen = open_from(context, stack)
    address = data_address(chosen, at_most_one("path", path) or root.absolute().name, container, sas_file)
    _, real = access.typed("source", root)
    for note in access.notes:
        output.progress(note)
    if dry_run:
        from launch.data.local_files import list_files

        files = list_files(real, access.folders)
        amount = size(sum(one.size for one in files))
        output.steps([f"upload {root}, {counted(len(files), 'file')}, {amount}, to {address.url}"], json=json)
        return
    moved = upload(chosen, real, address, access.folders)
    _report("sent", moved, address.url, json=json)


def upload(stack: Stack, root: Path, address: BlobAddress, allowed: Sequence[Path] = ()) -> Moved:
    """Upload a file, or a folder's files below it, from a resolved path to an address; links may lead into
    ``allowed``. Raise :class:`~launch.errors.InputError` for a folder without a file, and where a file and a
    folder would have one path."""
    from launch.data.local_files import Digests, LocalFile, list_files
    from launch.data.transfer import names_below, refuse_nesting
    from playbooks.data.blob_transfer import list_blobs, put_files

    found = list_files(root, allowed)
    if not found:
        problem = "has no file, and storage has no empty folders"
        raise InputError("source", str(root), problem, "put a file into it first")
    if root.is_dir():
        files = names_below(address, found)
    else:
        one = found[0]
        files = {address.path: LocalFile(address.path, one.path, one.size, one.status)}
    container = container_of(stack, address)
    digests = Digests(stack.hashes_of(root).with_suffix(".md5.json"))
    stored = {blob.name: blob for blob in list_blobs(container, address)}
    refuse_nesting(files, stored)
    with output.progress_bar("data") as update:
        return put_files(container, address, files, stored, digests, update)


@command(
    "get",
    called="data.get",
    example="fab data.get train/model --container results",
    help={
        "path": PATH_HELP,
        "target": "a folder of this machine (default: the last part of the path, in the current folder)",
        "container": CONTAINER_HELP,
        "sas-file": OWN_SAS_HELP,
        "overwrite": "replace files with other content",
    },
    iterable=["target"],
    positional=["path", "target"],
)
def get(  # noqa: PLR0913, PLR0917  (each is an option)
    context: Context,
    path: str,
    target: list[str] | None = None,
    container: str = "data",
    sas_file: str | None = None,
    overwrite: bool = False,
    stack: str | None = None,
    json: bool = False,
    dry_run: bool = False,
) -> None:
    """Download a blob or a folder of blobs. What is there already is not fetched again.

    Every file is checked and whole, or not there; a download that was cut off goes on where it stopped.
    """
    from launch.data.local_files import Digests
    from launch.data.transfer import destinations
    from playbooks.data.blob_transfer import get_blobs, list_blobs

    chosen = open_from(context, stack)
    address = data_address(chosen, path, container, sas_file)
    given = at_most_one("target", target)
    of_folder = Path(given or address.path.rpartition("/")[2] or address.container).expanduser()
    of_file = Path(given or ".").expanduser()
    if dry_run:
        places = of_folder if given else f"{of_folder}, or into {of_file.absolute()} if it is one file"
        other = "replace" if overwrite else "refuse to replace"
        steps = [f"download {address.url} into {places}", f"{other} files there that have other content"]
        output.steps(steps, json=json)
        return
    client = container_of(chosen, address)
    blobs = list_blobs(client, address)
    if not blobs:
        raise InputError("path", address.url, "there is no data", "see `fab data.ls`")
    is_file = len(blobs) == 1 and blobs[0].name == address.path
    folder = of_file if is_file else of_folder
    if not given and not is_file:
        _check_default(of_folder)
    wanted = destinations(address, blobs, folder)
    digests = Digests(chosen.hashes_of(folder).with_suffix(".md5.json"))
    with output.progress_bar("data") as update:
        moved = get_blobs(client, address, wanted, digests, update, overwrite=overwrite)
    digests.save()
    _report("fetched", moved, str(next(iter(wanted)) if is_file else folder), json=json)


def _check_default(folder: Path) -> None:
    """Raise InputError where the folder that the user did not name is a link, or one of settings."""
    if folder.is_symlink():  # a repository's own, which may lead anywhere
        raise InputError("target", str(folder), "is a link", "give a folder as the target")
    if is_obeyed(folder.name):
        raise InputError("target", str(folder), "is a folder of settings", "give a folder as the target")


def _report(what: str, moved: Moved, where: str, *, json: bool) -> None:
    if json:
        output.as_json({"to": where, **asdict(moved)})
        return
    rate = f", {size(moved.moved_bytes / moved.seconds)}/s" if moved.moved_bytes and moved.seconds else ""
    output.result(
        f"{where}: {counted(moved.files, 'file')}, {size(moved.bytes)}; {what} "
        f"{counted(moved.moved_files, 'file')}, {size(moved.moved_bytes)}, in {moved.seconds:.1f} s{rate}"
    )
