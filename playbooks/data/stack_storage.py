"""A stack's storage, from what is saved of the stack and its settings."""

from __future__ import annotations

from pathlib import Path

from infra.config.readers import KEY
from infra.config.storage_settings import read_datastores
from infra.inventory import Inventory
from launch.data.data_spec import BlobAddress
from launch.data.data_stores import Storage, read_sas_urls
from launch.errors import InputError
from playbooks.project import Stack

__all__ = ["SAS_HELP", "sas_flag", "storage_of"]

SAS_HELP = (
    "a file with the SAS of data that the nodes' identity does not open: on each line the address of a "
    "container, folder or blob with its SAS"
)


def storage_of(stack: Stack, inventory: Inventory) -> Storage:
    """Return the stack's storage. Raise :class:`~launch.errors.InputError` for a wrong setting."""
    key = f"{KEY}datastores"
    given = stack.settings().get(key) if stack.configuration.exists() else None
    account = inventory.blob_endpoint
    return Storage(account.rstrip("/") if account else None, read_datastores(key, given) if given else {})


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
