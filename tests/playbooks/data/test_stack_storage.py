"""What a task is given of storage: a path, an address, and the SAS of those that no sign-in opens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.core.credentials import AzureSasCredential
from azure.storage.blob import BlobServiceClient, ContainerClient, generate_container_sas

from infra.arm import clients
from launch.data.data_spec import BlobAddress
from launch.errors import GiveUpError, InputError
from playbooks.data.blob_transfer import delete_blobs, list_blobs
from playbooks.data.stack_storage import container_of, data_address
from playbooks.project import Stack

OTHER = "https://other.blob.core.windows.net"


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack("dev", tmp_path, {})


@pytest.fixture
def sas_file(tmp_path: Path) -> str:
    path = tmp_path / "sas.txt"
    path.write_text(f"{OTHER}/sets?sv=2022&sig=SECRET\n{OTHER}/sets/mine?sv=2022&sig=MINE\n")
    return str(path)


def test_the_sas_of_the_closest_address_opens_it(stack: Stack, sas_file: str) -> None:
    for path, signature in (("x/y", "SECRET"), ("mine/z", "MINE")):
        address = data_address(stack, f"{OTHER}/sets/{path}", "data", sas_file)
        with container_of(stack, address) as client:
            assert isinstance(client.credential, AzureSasCredential)
            assert client.credential.signature == f"sv=2022&sig={signature}"
            assert client.url == f"{OTHER}/sets"
        assert signature not in f"{address}{address.url}"


def test_other_addresses_are_opened_by_the_sign_in(stack: Stack, sas_file: str) -> None:
    address = data_address(stack, f"{OTHER}/another/x", "data", sas_file)
    with container_of(stack, address) as client:
        assert not isinstance(client.credential, AzureSasCredential)


def test_a_sas_in_the_address_is_refused(stack: Stack) -> None:
    with pytest.raises(InputError, match=r"sets/x\?….*--sas-file FILE") as caught:
        data_address(stack, f"{OTHER}/sets/x?sv=2022&sig=SECRET", "data")
    assert "SECRET" not in str(caught.value)


def test_a_web_address_is_not_a_place_in_storage(stack: Stack) -> None:
    with pytest.raises(InputError, match="is not a place in storage; give a path in the container data"):
        data_address(stack, "https://example.org/x", "data")


def test_a_sas_opens_what_it_allows_and_nothing_else(
    blob_service: BlobServiceClient, container: ContainerClient
) -> None:
    container.upload_blob("signed/one.txt", b"one")
    query = generate_container_sas(
        "acme",
        container.container_name,
        account_key=blob_service.credential.account_key,
        permission="rl",
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    address = BlobAddress(blob_service.url, container.container_name, "signed", query)
    with clients.blob_service(blob_service.url, {}, query) as service:
        signed = service.get_container_client(container.container_name)
        assert [blob.name for blob in list_blobs(signed, address)] == ["signed/one.txt"]
        with pytest.raises(GiveUpError, match=r"signed: Authori\w+: the SAS of --sas-file has") as caught:
            delete_blobs(signed, address, list_blobs(signed, address))
    assert query not in str(caught.value)
