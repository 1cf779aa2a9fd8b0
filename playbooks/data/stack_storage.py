"""A stack's storage, from what is saved of the stack and its settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from infra.inventory import Inventory
from launch.data.data_address import is_address, read_address, without_query
from launch.data.data_spec import STAGES, BlobAddress, DatastorePath, Stage
from launch.data.data_stores import Storage, choose_stage, read_sas_urls, refuse_sas, with_sas
from launch.errors import InputError
from playbooks.project import Stack

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

__all__ = [
    "CONTAINER_HELP",
    "OWN_SAS_HELP",
    "PATH_HELP",
    "SAS_HELP",
    "STAGE_HELP",
    "at_most_one",
    "container_of",
    "data_address",
    "read_stage",
    "sas_flag",
    "stage_flag",
    "storage_of",
]

PATH_HELP = "a path in the container data, or an address like azureml://datastores/NAME/paths/PATH"
CONTAINER_HELP = "another container for a path: results, or what `ranklift:datastores` names"

SAS_HELP = (
    "a file with the SAS of data that the nodes' identity does not open: on each line the address of a "
    "container, folder or blob with its SAS"
)

OWN_SAS_HELP = (
    "a file with the SAS of what your sign-in does not open: on each line the address of a container or "
    "folder with its SAS"
)

STAGE_HELP = (
    "where data in storage go: `disk`, each node's own, or `nfs`, once into the folder that the nodes share"
)

_DATASTORES = "ranklift:datastores"


def storage_of(stack: Stack, inventory: Inventory) -> Storage:
    """Return the stack's storage. Raise :class:`~launch.errors.InputError` for a wrong setting."""
    settings = stack.settings() if stack.configuration.exists() else {}
    account = inventory.blob_endpoint.rstrip("/") if inventory.blob_endpoint else None
    if not any(key.startswith("ranklift:data") for key in settings):
        return Storage(account, {}, inventory.shared_folder)
    # Every start of fab would import all settings.
    from infra.config.storage_settings import read_datastores, read_limits

    stores = read_datastores(_DATASTORES, settings[_DATASTORES]) if settings.get(_DATASTORES) else {}
    return Storage(account, stores, inventory.shared_folder, read_limits(settings))


def stage_flag(text: str | None, storage: Storage) -> Stage:
    """Return where ``--stage`` wants data. Raise :class:`~launch.errors.InputError`."""
    if text is None:
        return "disk"
    return choose_stage("--stage", read_stage("--stage", text), storage)


def read_stage(key: str, text: str) -> Stage:
    """Return the place that a word names. Raise :class:`~launch.errors.InputError`."""
    for stage in STAGES:
        if text == stage:
            return stage
    raise InputError(key, text, "is not where data can be staged", f"use {' or '.join(STAGES)}")


def at_most_one(key: str, given: Sequence[str] | None) -> str | None:
    """Return an argument that may be left out. Raise :class:`~launch.errors.InputError` for two."""
    if given and given[1:]:
        raise InputError(key, given[1], "is one too many", "put a name with blanks in quotes")
    return given[0] if given else None


def data_address(stack: Stack, text: str, container: str, sas_file: str | None = None) -> BlobAddress:
    """Return the address in storage that a task is given: one, or a path in a container; with its SAS where
    ``--sas-file`` has one.

    Raise :class:`~launch.errors.InputError`.
    """
    signed = sas_flag(sas_file)
    written = text if is_address(text) else f"azureml://datastores/{container}/paths/{text}"
    address = read_address("path", written)
    if isinstance(address, DatastorePath):
        address = storage_of(stack, stack.saved()).locate(address, "path")
    if not isinstance(address, BlobAddress):
        remedy = f"give {PATH_HELP}"
        raise InputError("path", without_query(text), "is not a place in storage", remedy)
    refuse_sas("path", address)
    return with_sas(address, signed)


def container_of(stack: Stack, address: BlobAddress) -> ContainerClient:
    """Return the client of an address's container, which acts for the operator, or by the address's SAS."""
    from infra.arm.clients import blob_service

    service = blob_service(address.account_url, stack.environment, address.sas)
    return service.get_container_client(address.container)


def sas_flag(path: str | None) -> tuple[BlobAddress, ...]:
    """Return the addresses with a SAS that ``--sas-file`` has. Raise :class:`~launch.errors.InputError`."""
    if path is None:
        return ()
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not a text"
        remedy = "give a file with https://ACCOUNT.blob.core.windows.net/CONTAINER?SAS on each line"
        raise InputError("--sas-file", path, f"cannot be read: {why}", remedy) from None
    found = read_sas_urls(text.splitlines())
    if not found:
        raise InputError("--sas-file", path, "has no address", "write one with its SAS on each line")
    return found
