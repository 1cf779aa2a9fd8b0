"""Where outputs go."""

from __future__ import annotations

import pytest

from launch.data.data_inputs import find_source
from launch.data.data_spec import BlobAddress, DataInput, DatastorePath
from launch.data.data_stores import Storage
from launch.data.output_places import output_places, usual_places
from launch.errors import InputError

ACME = "https://acme.blob.core.windows.net"
RUNS = BlobAddress("https://other.blob.core.windows.net", "sets", "runs")
STORAGE = Storage(ACME, {"big": RUNS})


@pytest.mark.parametrize("datastore", ["workspaceblobstore", "data", "results", "big"])
def test_an_output_is_where_an_input_of_its_address_is(datastore: str) -> None:
    written = DatastorePath(datastore, "models/a")
    (place,) = output_places({"model": (written, "line 3")}, STORAGE)
    read = find_source("model", DataInput("folder", written, False, "inputs.model", "disk"), STORAGE)
    assert read is not None
    assert place == {"name": "model", "url": read.address.url}


def test_an_output_may_have_an_address_of_its_own() -> None:
    (place,) = output_places({"c": (BlobAddress(ACME, "own", "c"), "line 5")}, STORAGE)
    assert place["url"] == f"{ACME}/own/c"


@pytest.mark.parametrize("other", ["m", "m/a", "m/a/b"])
def test_two_outputs_in_one_place_are_refused(other: str) -> None:
    given = {
        "a": (DatastorePath("workspaceblobstore", "m/a"), "line 3"),
        "b": (DatastorePath("workspaceblobstore", other), "line 4"),
    }
    with pytest.raises(InputError, match=r"line 4 = .*: overlaps with that of output a"):
        output_places(given, STORAGE)


def test_a_container_as_a_whole_is_not_a_place() -> None:
    with pytest.raises(InputError, match="is a container"):
        output_places({"a": (BlobAddress(ACME, "results", ""), "line 3")}, STORAGE)


@pytest.mark.parametrize(
    ("storage", "url"),
    [
        (Storage(ACME), f"{ACME}/results/train-1"),
        (Storage(ACME, {"workspaceblobstore": RUNS}), f"{ACME}/results/train-1"),
        (Storage(ACME, {"results": RUNS}), f"{RUNS.url}/train-1"),
        (Storage(None, {"workspaceblobstore": RUNS}), f"{RUNS.url}/train-1"),
    ],
    ids=["account", "account with another default", "account with other results", "no account"],
)
def test_all_that_a_job_leaves_goes_to_a_folder_of_its_name(storage: Storage, url: str) -> None:
    assert usual_places("train-1", storage) == [{"name": "", "url": url}]


def test_without_storage_there_is_no_place_for_it() -> None:
    assert usual_places("train-1", Storage(None)) == []
