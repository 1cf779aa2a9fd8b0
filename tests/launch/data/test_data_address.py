"""Addresses of data: every form that Azure ML's files have, and what is refused with its remedy."""

from __future__ import annotations

import pytest

from launch.data.data_address import read_address, read_container, without_query
from launch.data.data_spec import (
    Address,
    AssetName,
    BlobAddress,
    DatastorePath,
    LocalPath,
    NodePath,
    WebAddress,
)
from launch.errors import InputError

ACME = "https://acme.blob.core.windows.net"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("azureml://datastores/big/paths/a b/ä", DatastorePath("big", "a b/ä")),
        ("azureml://datastores/workspaceblobstore/paths/iris/", DatastorePath("workspaceblobstore", "iris")),
        ("azureml://datastores/big", DatastorePath("big", "")),
        (
            "azureml://subscriptions/1/resourcegroups/r/workspaces/w/datastores/big/paths/a/b.csv",
            DatastorePath("big", "a/b.csv"),
        ),
        ("azureml:iris", AssetName("iris", "")),
        ("azureml:iris:3", AssetName("iris", "3")),
        ("azureml:iris@latest", AssetName("iris", "")),
        ("azureml://registries/azureml/data/wikitext/versions/1", AssetName("wikitext", "1")),
        (
            "azureml:/subscriptions/1/resourceGroups/r/providers/x/workspaces/w/data/iris/versions/2",
            AssetName("iris", "2"),
        ),
        (f"{ACME}/data/a%20b/%C3%A4.csv", BlobAddress(ACME, "data", "a b/ä.csv")),
        (f"{ACME}/data", BlobAddress(ACME, "data", "")),
        (f"{ACME}/data/x?sv=1&sig=abc", BlobAddress(ACME, "data", "x", "sv=1&sig=abc")),
        ("https://acme.dfs.core.windows.net/data/x", BlobAddress(ACME, "data", "x")),
        (
            "https://acme.z12.blob.storage.azure.net/data/x",
            BlobAddress("https://acme.z12.blob.storage.azure.net", "data", "x"),
        ),
        ("wasbs://data@acme.blob.core.windows.net/a/b", BlobAddress(ACME, "data", "a/b")),
        ("wasb://data@acme.blob.core.windows.net/", BlobAddress(ACME, "data", "")),
        ("abfss://data@acme.dfs.core.windows.net/a", BlobAddress(ACME, "data", "a")),
        ("https://example.com/a.csv", WebAddress("https://example.com/a.csv")),
        ("https://example.com/a.csv?dl=1", WebAddress("https://example.com/a.csv", "dl=1")),
        (
            "https://example.com/ä%20b.csv?q=ä%2F",
            WebAddress("https://example.com/%C3%A4%20b.csv", "q=%C3%A4%2F"),
        ),
        ("file:///mnt/data", NodePath("/mnt/data")),
    ],
)
def test_an_address_is_read(text: str, address: Address) -> None:
    assert read_address("path", text) == address


@pytest.mark.parametrize("text", ["data/iris.csv", r"C:\data", "~/data", "../data"])
def test_what_has_no_scheme_is_a_path_of_this_machine(text: str) -> None:
    assert isinstance(read_address("path", text), LocalPath)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("azureml://datastores/big/paths/../x", "has the part '..'"),
        ("azureml://datastores/big/paths/a//b", "has an empty part"),
        ("azureml://datastores/big/paths/a\nb", r"has the part 'a\nb'"),
        ("azureml://jobs/one/outputs/x", "is not an address of data"),
        ("azureml:iris@best", "has the label best"),
        (f"{ACME}/Data/x", "Data is not a container's name"),
        (f"{ACME}/", "has no container"),
        (f"{ACME}/data/%FF", "has a name that is not UTF-8"),
        (f"{ACME}/data/x?versionid=2026", "names a version or a snapshot of a blob"),
        ("wasbs://acme.blob.core.windows.net/x", "does not name a container and an account"),
        ("wasbs://data@example.com/x", "does not name a container and an account"),
        ("http://example.com/x", "is not encrypted"),
        ("https://", "has no host"),
        ("https://example.com/a b", "a blank"),
        ("https://exämple.com/a", "a host that is not ASCII"),
        ("s3://bucket/x", "data at s3: is not fetched"),
        ("adl://acme.azuredatalakestore.net/x", "Data Lake Storage Gen1 has ended"),
        ("file:data", "is not an absolute path on the nodes"),
    ],
)
def test_a_wrong_address_is_refused_with_its_remedy(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        read_address("job.yml, line 3: inputs.a.path", text)
    assert problem in str(caught.value)
    assert str(caught.value).startswith("job.yml, line 3: inputs.a.path = ")
    assert "; " in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"{ACME}/Data/x?sv=1&sig=SECRET",
        f"{ACME}/data/../x?sig=SECRET",
        "https://me:SECRET@example.com/x",
        f"{ACME}/data/x?sig=SECRET#part",
        "s3://bucket/x?sig=SECRET",
        "https:/acme.blob.core.windows.net/data/x?sv=1&sig=SECRET",
        "wasbs://data@acme.blob.core.windows.net/x?sv=1&sig=SECRET",
        "abfss://data@acme.dfs.core.windows.net/x?sig=SECRET",
        "azureml://datastores/big/paths/x?sv=1&sig=SECRET",
    ],
)
def test_no_secret_is_in_an_error_or_shown(text: str) -> None:
    with pytest.raises(InputError) as caught:
        read_address("path", text)
    assert "SECRET" not in str(caught.value)
    assert "SECRET" not in without_query(text)


def test_no_secret_is_shown_of_an_address() -> None:
    for address in (
        BlobAddress(ACME, "data", "x", "sig=SECRET"),
        WebAddress("https://example.com/x", "SECRET"),
    ):
        assert "SECRET" not in repr(address)
        assert "SECRET" not in address.url


def test_a_datastore_is_a_container_or_a_folder_in_one() -> None:
    assert read_container("key", f"{ACME}/sets/big/") == BlobAddress(ACME, "sets", "big")
    with pytest.raises(InputError, match="is not the address of a container"):
        read_container("key", "https://example.com/x")
