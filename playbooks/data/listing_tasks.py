"""``fab data.ls``, ``fab data.rm`` and ``fab data.register``: what is in the stack's storage."""

from __future__ import annotations

from pathlib import Path

from invoke.context import Context

from launch.errors import InputError
from launch.moments import cell
from launch.numbers import counted
from launch.remote.base.messages import size
from playbooks.cli import output
from playbooks.cli.access import ALLOW_HELP, access_flags
from playbooks.cli.task import command, open_from
from playbooks.data.put import upload
from playbooks.data.stack_storage import (
    CONTAINER_HELP,
    OWN_SAS_HELP,
    PATH_HELP,
    at_most_one,
    container_of,
    data_address,
)

__all__ = ["list_data", "register", "remove"]


@command(
    "ls",
    called="data.ls",
    example="fab data.ls train --container results",
    help={
        "path": f"{PATH_HELP} (default: the whole container)",
        "container": CONTAINER_HELP,
        "sas-file": OWN_SAS_HELP,
    },
    iterable=["path"],
    positional=["path"],
)
def list_data(
    context: Context,
    path: list[str] | None = None,
    container: str = "data",
    sas_file: str | None = None,
    stack: str | None = None,
    json: bool = False,
) -> None:
    """List what is in the stack's storage, each folder with all that is below it."""
    from launch.data.transfer import by_folder
    from playbooks.data.blob_transfer import list_blobs

    chosen = open_from(context, stack)
    address = data_address(chosen, at_most_one("path", path) or "", container, sas_file)
    rows = by_folder(address, list_blobs(container_of(chosen, address), address))
    if json:
        output.as_json(
            [
                {"name": r.name, "files": r.files, "bytes": r.bytes, "modified": r.modified.isoformat()}
                for r in rows
            ]
        )
        return
    if not rows:
        output.progress(f"{address.url} has no data")
        return
    cells = [(r.name, size(r.bytes), r.files, cell(r.modified, seconds=False)) for r in rows]
    output.table(("name", "size", "files", "changed (UTC)"), cells)


@command(
    "rm",
    called="data.rm",
    example="fab data.rm imagenet --yes",
    help={
        "path": PATH_HELP,
        "container": CONTAINER_HELP,
        "sas-file": OWN_SAS_HELP,
        "yes": "delete without a question",
        "dry-run": "count what would be deleted, which storage is asked for",
    },
    positional=["path"],
)
def remove(
    context: Context,
    path: str,
    container: str = "data",
    sas_file: str | None = None,
    yes: bool = False,
    stack: str | None = None,
    dry_run: bool = False,
) -> None:
    """Delete a blob or a folder of blobs from the stack's storage; what nodes hold of it stays there."""
    from playbooks.data.blob_transfer import delete_blobs, list_blobs

    chosen = open_from(context, stack)
    address = data_address(chosen, path, container, sas_file)
    if not address.path:
        raise InputError("path", path, "is a whole container", "name what in it is to be deleted")
    client = container_of(chosen, address)
    blobs = list_blobs(client, address)
    if not blobs:
        raise InputError("path", address.url, "there is no data", "see `fab data.ls`")
    what = f"{address.url}: {counted(len(blobs), 'file')}, {size(sum(one.size for one in blobs))}"
    if dry_run:
        output.result(f"would delete {what}")
        return
    if not yes and not output.ask(f"delete {what}?"):
        raise InputError(
            "--yes", None, f"was not given, and {what} would be deleted", "give it to delete them"
        )
    delete_blobs(client, address, blobs)
    output.result(f"deleted {what}")


@command(
    "register",
    called="data.register",
    example="fab data.register iris.yml",
    help={"file": "a data asset as `az ml data create --file` takes it", "allow-path": ALLOW_HELP},
    iterable=["allow_path"],
    positional=["file"],
)
def register(
    context: Context,
    file: str,
    allow_path: list[str] | None = None,
    stack: str | None = None,
    dry_run: bool = False,
) -> None:
    """Make a data asset, which job files name as azureml:NAME:VERSION. Data of this machine is uploaded.

    Without a version in the file it is the next number.
    """

    from launch.jobfile import list_assets, read_asset
    from playbooks.data.assets import asset_document, asset_fields, asset_file, next_version

    chosen = open_from(context, stack)
    access = access_flags(None, allow_path)
    asset = read_asset(Path(file).expanduser(), access)
    for note in access.notes:
        output.progress(note)
    known = [
        read_asset(path, access, chosen.project) for path in list_assets(chosen.project).get(asset.name, ())
    ]
    version = asset.version or next_version([one.version for one in known])
    target = asset_file(chosen.project, asset.name, version)
    if any(one.version == version for one in known) or target.exists():
        remedy = "give another version, or leave it out for the next number"
        raise InputError("version", version, f"azureml:{asset.name}:{version} is there already", remedy)
    document = asset_fields(asset.file)
    if asset.data.local is not None:
        address = data_address(chosen, f"assets/{asset.name}/{version}", "data")
        root = asset.data.local
        if root.is_file():
            address = data_address(chosen, f"assets/{asset.name}/{version}/{root.name}", "data")
        if dry_run:
            output.result(f"upload {root} to {address.url}")
        else:
            upload(chosen, asset.data.real or root, address, access.folders)
        document["path"] = f"azureml://datastores/workspaceblobstore/paths/{address.path}"
    if dry_run:
        output.result(f"make azureml:{asset.name}:{version}: {target}")
        return
    target.parent.mkdir(exist_ok=True)
    target.write_text(asset_document(document, version), encoding="utf-8")
    output.result(f"azureml:{asset.name}:{version}: {target}")
