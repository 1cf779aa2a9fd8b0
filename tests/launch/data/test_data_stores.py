"""What of a stack's storage an address means, who may read it, and what nodes are asked for."""

from __future__ import annotations

import pytest

from launch.data.data_inputs import find_source, read_input_flags
from launch.data.data_spec import AssetName, BlobAddress, DataInput, DataSource, DatastorePath, WebAddress
from launch.data.data_stores import Storage, read_sas_urls, stage_request, with_sas
from launch.errors import InputError

ACME, OTHER = "https://acme.blob.core.windows.net", "https://other.blob.core.windows.net"
STORAGE = Storage(ACME, {"big": BlobAddress(OTHER, "sets", "2026")})


@pytest.mark.parametrize(
    ("datastore", "url"),
    [
        ("workspaceblobstore", f"{ACME}/data/a"),
        ("results", f"{ACME}/results/a"),
        ("scratch", f"{ACME}/scratch/a"),
        ("big", f"{OTHER}/sets/2026/a"),
    ],
)
def test_a_datastore_is_a_container(datastore: str, url: str) -> None:
    assert STORAGE.locate(DatastorePath(datastore, "a"), "path").url == url


def test_an_unknown_datastore_is_refused_with_those_that_are_there() -> None:
    with pytest.raises(InputError) as caught:
        STORAGE.locate(DatastorePath("My_Store", "a"), "job.yml, line 3")
    assert "no container can have this name; use big, data, results, workspaceblobstore" in str(caught.value)


def test_a_stack_without_storage_has_no_datastore_of_its_own() -> None:
    with pytest.raises(InputError, match="has no storage; set ranklift:storage"):
        Storage(None).locate(DatastorePath("data", "a"), "path")


@pytest.mark.parametrize(
    ("address", "auth"),
    [
        (BlobAddress(ACME, "data", "a"), "identity"),
        (BlobAddress(OTHER, "sets", "a"), "identity"),
        (BlobAddress("https://public.blob.core.windows.net", "sets", "a"), "either"),
        (BlobAddress(ACME, "data", "a", "sig=x"), "sas"),
        (WebAddress("https://example.com/x"), "none"),
        (WebAddress("https://example.com/x", "token=x"), "sas"),
    ],
)
def test_each_address_is_opened_by_what_opens_it(address: BlobAddress | WebAddress, auth: str) -> None:
    request = stage_request([DataSource("a", "file", address)], STORAGE)
    assert request["sources"][0]["auth"] == auth
    assert request["sas"] == (
        {"a": "sig=x" if "sig" in request["sas"]["a"] else "token=x"} if auth == "sas" else {}
    )
    assert "?" not in request["sources"][0]["url"]


def test_a_sas_opens_what_is_below_its_address_alone() -> None:
    signed = read_sas_urls(
        ["# mine", f"{OTHER}/sets?sv=1&sig=all", "", f"{OTHER}/sets/a/b?sig=closer"],
    )
    found = [with_sas(BlobAddress(OTHER, "sets", path), signed).sas for path in ("a/b", "a/b/c", "a/bc", "")]
    assert found == ["sig=closer", "sig=closer", "sv=1&sig=all", "sv=1&sig=all"]
    assert with_sas(BlobAddress(OTHER, "setsa", "x"), signed).sas == ""


@pytest.mark.parametrize("line", [f"{OTHER}/sets", "sv=1&sig=SECRET", "https://example.com/x?sig=SECRET"])
def test_a_line_without_a_sas_is_refused_without_being_shown(line: str) -> None:
    with pytest.raises(InputError) as caught:
        read_sas_urls(["", line])
    assert str(caught.value).startswith("--sas-file, line 2: ")
    assert "SECRET" not in str(caught.value)


def test_inputs_of_a_command_line_are_files_or_folders_by_their_slash() -> None:
    found = read_input_flags(
        ["a=azureml://datastores/data/paths/x/", "b=azureml://datastores/data/paths/x", "c=azureml:iris:1"]
    )
    assert [one.kind for one in found.values()] == ["folder", "file", "file"]
    assert found["c"].address == AssetName("iris", "1")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["x"], "is not NAME=ADDRESS"),
        (["a b=c"], "is not NAME=ADDRESS"),
        (["a="], "is not NAME=ADDRESS"),
        (["a=x", "a=y"], "is given twice"),
        ([f"a={OTHER}/sets/x?sig=SECRET"], "holds a SAS, which others could read here"),
    ],
)
def test_a_wrong_input_is_refused(given: list[str], problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        read_input_flags(given)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (DataInput("file", DatastorePath("data", "")), "is a container, not a file"),
        (DataInput("folder", WebAddress("https://example.com/x/")), "is a folder of a web server"),
        (DataInput("file", WebAddress("https://example.com/x", "token=SECRET"), direct=True), "has a query"),
    ],
)
def test_what_cannot_be_fetched_is_refused(wanted: DataInput, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        find_source("a", wanted, STORAGE)
    assert "SECRET" not in str(caught.value)


def test_a_flag_with_a_wrong_name_shows_no_sas() -> None:
    with pytest.raises(InputError) as caught:
        read_input_flags([f"my-set={ACME}/data/x?sig=SECRET"])
    assert f"--input = 'my-set={ACME}/data/x?…': is not NAME=ADDRESS" in str(caught.value)
