"""Where outputs go."""

from __future__ import annotations

import pytest

from launch.data.data_spec import BlobAddress, DatastorePath
from launch.data.data_stores import Storage
from launch.data.output_places import output_places, usual_places
from launch.errors import InputError

ACME = "https://acme.blob.core.windows.net"
STORAGE = Storage(ACME, {"big": BlobAddress("https://other.blob.core.windows.net", "sets", "runs")})


def test_the_default_datastore_of_outputs_is_the_container_of_results() -> None:
    found = output_places(
        {
            "a": (DatastorePath("workspaceblobstore", "m/a"), "line 3"),
            "b": (DatastorePath("big", "b"), "line 4"),
            "c": (BlobAddress(ACME, "own", "c"), "line 5"),
        },
        STORAGE,
    )
    assert {one["name"]: one["url"] for one in found} == {
        "a": f"{ACME}/results/m/a",
        "b": "https://other.blob.core.windows.net/sets/runs/b",
        "c": f"{ACME}/own/c",
    }


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


def test_by_hand_outputs_go_to_the_stacks_storage_or_where_the_job_file_says() -> None:
    place = {"name": "", "url": "https://acme.blob.core.windows.net/results/train-1"}
    assert usual_places("train-1", Storage("https://acme.blob.core.windows.net")) == [place]
    other = BlobAddress("https://other.blob.core.windows.net", "x", "runs")
    (found,) = usual_places("train-1", Storage(None, {"workspaceblobstore": other}))
    assert found["url"] == "https://other.blob.core.windows.net/x/runs/train-1"
    assert usual_places("train-1", Storage(None)) == []
