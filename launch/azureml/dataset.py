"""``Dataset``, ``Datastore`` and what a run reads and writes: inputs and outputs of the job file."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launch.azureml.exceptions import ExperimentExecutionException, NotSupported, UserErrorException
from launch.azureml.missing import Element
from launch.data.data_address import read_address
from launch.data.data_spec import WebAddress

__all__ = [
    "DataReference",
    "Dataset",
    "DatasetConsumptionConfig",
    "Datastore",
    "FileDataset",
    "OutputFileDatasetConfig",
    "bind_data",
    "settle",
]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MARK = "ranklift-data-{}-"
_PLACEHOLDERS = {"{run-id}": "${{name}}", "{output-name}": "${{output_name}}"}
"""What azureml-core replaces in a destination, and a job file's words for it: the documentation of
OutputFileDatasetConfig (learn.microsoft.com/python/api/azureml-core/azureml.data.outputfiledatasetconfig)."""
_BRACES = re.compile(r"\$?\{+[^{}]*\}*|\}")


class Datastore(Element):
    """A datastore by name: a container of the stack's account, or what ``ranklift:datastores`` names."""

    datastore_type = "AzureBlob"
    account_name: str | None = None
    container_name: str | None = None
    """Both belong to a stack, which is known when a run is submitted."""

    def __init__(self, workspace: Any, name: str = "workspaceblobstore") -> None:
        self.workspace, self.name = workspace, name
        self._complete = True

    @staticmethod
    def get(workspace: Any, datastore_name: str) -> Datastore:
        """Return the datastore of that name, which a run looks for when it is submitted."""
        return Datastore(workspace, datastore_name)

    @staticmethod
    def get_default(workspace: Any) -> Datastore:
        """Return ``workspaceblobstore``, the container ``data``."""
        return Datastore(workspace)

    def path(self, path: str | None = None, data_reference_name: str | None = None) -> DataReference:
        """Return a reference to a folder, for a run's arguments."""
        return DataReference(self, data_reference_name, path)

    def as_mount(self) -> DataReference:
        """Return a reference to all of it."""
        return self.path()

    def as_download(self, path_on_compute: Any = None) -> Any:
        """Return a reference to all of it, copied to every node's disk."""
        return self.path().as_download()

    def address(self, path: str) -> str:
        """Return a path as a job file names it."""
        return f"azureml://datastores/{self.name}/paths/{path.lstrip('/')}"


class _Bound(Element):
    """What stands for a path in a run's arguments."""

    name: str | None
    mode = "download"

    def _as(self, mode: str) -> Any:
        made = copy.copy(self)
        made.mode = mode
        return made

    def as_download(self, *_: Any, **__: Any) -> Any:
        """Return it, copied to every node's disk; ``path_on_compute`` has no effect."""
        return self._as("download")

    def as_mount(self, *_: Any, **__: Any) -> Any:
        """Return it, copied as with :meth:`as_download`: no network folder is mounted."""
        return self._as("ro_mount")

    def entry(self) -> dict[str, str]:
        """Return the job file's input."""
        raise NotImplementedError

    def __str__(self) -> str:
        """Raise NotSupported: the path is known on the nodes alone."""
        remedy = "put the object itself into the arguments, without str() and f-strings"
        raise NotSupported(f"the text of a {type(self).__name__}", remedy)


class DatasetConsumptionConfig(_Bound):
    """A dataset with the name of a run's input."""

    def __init__(
        self, name: str | None, dataset: FileDataset, mode: str = "direct", path_on_compute: Any = None
    ) -> None:
        if name is not None and not _NAME.fullmatch(name):
            raise UserErrorException("name", name, "is not a name of an input", "use letters, digits and _")
        self.name, self.dataset, self.mode = name, dataset, mode
        self._complete = True

    def entry(self) -> dict[str, str]:
        """Return the job file's input."""
        made = {"path": self.dataset.address, "mode": self.mode}
        if self.dataset.is_file is not None:
            made["type"] = "uri_file" if self.dataset.is_file else "uri_folder"
        return made


class DataReference(_Bound):
    """A folder of a datastore."""

    def __init__(
        self,
        datastore: Datastore,
        data_reference_name: str | None = None,
        path_on_datastore: str | None = None,
        mode: str = "mount",
    ) -> None:
        self.datastore, self.name, self.path_on_datastore = datastore, data_reference_name, path_on_datastore
        self.mode = "ro_mount" if mode == "mount" else mode
        self._complete = True

    def entry(self) -> dict[str, str]:
        """Return the job file's input."""
        return {
            "type": "uri_folder",
            "path": self.datastore.address(self.path_on_datastore or ""),
            "mode": self.mode,
        }


class FileDataset(Element):
    """Files in storage."""

    def __init__(self, address: str, *, is_file: bool | None = None) -> None:
        self.address, self.is_file = address, is_file
        self._complete = True

    def as_named_input(self, name: str) -> DatasetConsumptionConfig:
        """Return the dataset under the name of an input."""
        return DatasetConsumptionConfig(name, self, "download")

    def as_download(self, path_on_compute: Any = None) -> DatasetConsumptionConfig:
        """Return the dataset for a run's arguments, copied to every node's disk."""
        return DatasetConsumptionConfig(None, self, "download")

    def as_mount(self, path_on_compute: Any = None) -> DatasetConsumptionConfig:
        """Return the dataset for a run's arguments, copied as with :meth:`as_download`."""
        return DatasetConsumptionConfig(None, self, "ro_mount")


class _Files(Element):
    """``Dataset.File``."""

    _known_as = "Dataset.File"

    @staticmethod
    def from_files(
        path: Any, validate: bool = True, partition_format: Any = None, is_file: bool = False
    ) -> FileDataset:
        """Return the dataset of a path: ``(datastore, path)``, or an address.

        A path that ends in ``/`` or ``/**`` is a folder, and so is one without a dot in its last part unless
        ``is_file`` is set; which of the two another is, storage answers when a run is submitted. Raise
        NotSupported for several paths and patterns.
        """
        paths = list(path) if isinstance(path, list) else [path]
        if len(paths) != 1 or partition_format is not None:
            raise NotSupported("a dataset of several paths", "give the folder that has all of them")
        (one,) = paths
        address = one[0].address(one[1]) if isinstance(one, tuple) else str(one)
        folder = address.removesuffix("/**").removesuffix("/*")
        is_folder = folder != address or address.endswith("/") or "." not in address.rpartition("/")[2]
        address = folder
        if "*" in address or "://" not in address:
            remedy = "give a folder or a file, as (datastore, path) or as an address"
            raise UserErrorException("path", address, "is not a place in storage", remedy)
        if is_file or (not is_folder and isinstance(read_address("path", address), WebAddress)):
            return FileDataset(address, is_file=True)
        return FileDataset(address, is_file=False if is_folder else None)


class Dataset(Element):
    """Datasets by path or by name."""

    File = _Files

    @staticmethod
    def get_by_name(workspace: Any, name: str, version: Any = "latest") -> FileDataset:
        """Return the data asset ``data/NAME.yml``, which a run looks for when it is submitted."""
        label = "@latest" if version == "latest" else f":{version}"
        return FileDataset(f"azureml:{name}{label}")


class OutputFileDatasetConfig(_Bound):
    """A folder that a run writes, which goes to storage when the run has ended."""

    def __init__(self, name: str | None = None, destination: Any = None, source: Any = None) -> None:
        if source is not None:
            raise NotSupported(
                "OutputFileDatasetConfig's source", "write into the folder that the argument names"
            )
        self.name, self.destination = name, destination
        self._complete = True

    def as_upload(self, *_: Any, **__: Any) -> OutputFileDatasetConfig:
        """Return it: outputs are uploaded when the job has ended."""
        return self

    def entry(self) -> dict[str, str]:
        """Return the job file's output."""
        if self.destination is None:
            return {"type": "uri_folder"}
        store, path = self.destination
        return {"type": "uri_folder", "path": store.address(_BRACES.sub(_placeholder, path))}


def _placeholder(found: re.Match[str]) -> str:
    if found[0] not in _PLACEHOLDERS:
        problem, remedy = "is not replaced in a destination", f"write {' or '.join(_PLACEHOLDERS)}"
        raise UserErrorException("destination", found[0], problem, remedy)
    return _PLACEHOLDERS[found[0]]


def settle(inputs: Mapping[str, dict[str, str]], rows: Callable[[str], Sequence[Mapping[str, Any]]]) -> None:
    """Give the inputs whose paths may be a file or a folder the type that storage has there.

    ``rows`` returns what ``fab data.ls`` lists at an address. Raise UserErrorException where that has
    nothing, or fails.
    """
    for entry in inputs.values():
        path = entry["path"] if isinstance(entry, dict) else ""
        if "://" not in path or "type" in entry:
            continue
        remedy = "if it is a folder, end it with a slash; if it is one file, give from_files(…, is_file=True)"
        try:
            found = rows(path)
        except ExperimentExecutionException as error:
            problem = f"may be a file or a folder, and storage does not answer which: {error}"
            raise UserErrorException("path", path, problem, remedy) from None
        if not found:
            raise UserErrorException("path", path, "is neither a file nor a folder in storage", remedy)
        # A file is listed with its path in the container, which may begin above a datastore's; what a folder
        # has, by its name alone.
        wanted = getattr(read_address("path", path), "path", "")
        is_file = len(found) == 1 and f"/{found[0]['name']}".endswith(f"/{wanted}")
        entry["type"] = "uri_file" if is_file else "uri_folder"


def bind_data(arguments: Any) -> tuple[Any, dict[str, Any], Mapping[str, str]]:
    """Return arguments with words in place of data, the job file's inputs and outputs, and what in its
    command replaces the words."""
    if not isinstance(arguments, Sequence) or isinstance(arguments, str):
        return arguments, {}, {}
    words: list[Any] = []
    found: dict[str, dict[str, Any]] = {"inputs": {}, "outputs": {}}
    texts: dict[str, str] = {}
    bound = [FileDataset.as_download(one) if isinstance(one, FileDataset) else one for one in arguments]
    for number, one in enumerate(bound):
        if not isinstance(one, _Bound):
            words.append(one)
            continue
        group = "outputs" if isinstance(one, OutputFileDatasetConfig) else "inputs"
        name = one.name or f"{group[:-1]}_{number}"
        found[group][name] = one.entry()
        word = _MARK.format(number)
        words.append(word)
        texts[word] = f'"${{{{{group}.{name}}}}}"'
    return words, {key: value for key, value in found.items() if value}, texts
