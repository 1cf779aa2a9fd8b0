"""Whom the commands talk to."""

import json
import re
import socketserver
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import certifi
import pytest
from azure.core.exceptions import ResourceNotFoundError, ServiceRequestError

from infra.arm.clients import (
    blob_service,
    clients,
    endpoint,
    rehearsal_token,
    remove,
    resource_client,
)
from infra.arm.rest import Answer
from infra.arm.types import REMOVABLE
from launch.errors import InputError
from tests.infra.azure_answers import Azure, rehearsed, served


@pytest.mark.parametrize(
    "url",
    [
        "http://management.azure.com",
        "https://127.0.0.1:8443",
        "http://10.0.0.4:80",
        "http://127.0.0.1.evil.example:80",
        "http://user@127.0.0.1:80",
        "http://127.0.0.1:port",
        "127.0.0.1:80",
    ],
)
def test_only_this_machine_is_taken_for_a_rehearsal(url: str) -> None:
    with pytest.raises(InputError, match="RANKLIFT_ARM_ENDPOINT"):
        endpoint({"RANKLIFT_ARM_ENDPOINT": url})


@pytest.mark.parametrize("url", ["http://127.0.0.1:81", "http://localhost:81", "http://[::1]:81"])
def test_a_rehearsal_is_asked_where_it_listens(url: str) -> None:
    assert endpoint({"RANKLIFT_ARM_ENDPOINT": url + "/"}) == url


def test_without_a_rehearsal_azure_is_asked() -> None:
    assert endpoint({}) is None
    assert endpoint({"RANKLIFT_ARM_ENDPOINT": ""}) is None


@pytest.mark.parametrize("cloud", ["usgovernment", "china", "AzureUSGovernment"])
def test_another_cloud_is_refused_by_its_name(cloud: str) -> None:
    with pytest.raises(InputError, match=f"ARM_ENVIRONMENT = '{cloud}': is another of Azure"):
        endpoint({"ARM_ENVIRONMENT": cloud})
    rehearsed = {"ARM_ENVIRONMENT": cloud, "RANKLIFT_ARM_ENDPOINT": "http://127.0.0.1:81"}
    assert endpoint(rehearsed) == "http://127.0.0.1:81"


@pytest.mark.parametrize("cloud", ["", "public", "AzureCloud", "AzurePublicCloud"])
def test_the_public_cloud_may_be_named(cloud: str) -> None:
    assert endpoint({"ARM_ENVIRONMENT": cloud}) is None


def test_a_request_to_the_rehearsal_asks_nobody_for_a_token(tmp_path: Path) -> None:
    found = clients("subscription", rehearsed("http://127.0.0.1:1", tmp_path))
    with pytest.raises(ServiceRequestError):  # nobody listens on port 1, which is found out after signing
        list(found.compute.virtual_machine_scale_set_vms.list("group", "set"))


def test_the_sdks_show_the_rehearsals_token(tmp_path: Path) -> None:
    class Noting(Azure):
        def __call__(self, url: str, headers: Mapping[str, str]) -> Answer:
            self.asked.append(headers["Authorization"])
            return Answer(200, b'{"value": []}')

    azure = Noting()
    with served(azure) as url:
        environment = rehearsed(url, tmp_path)
        list(resource_client("subscription", environment).resources.list())
        list(clients("subscription", environment).compute.virtual_machine_scale_sets.list_all())
    assert azure.asked == ["Bearer the operator's token"] * 2


@pytest.mark.parametrize("content", [None, "", "{}", '{"pid": 1}', "[]"])
def test_a_rehearsal_without_its_token_is_an_error_with_the_remedy(
    tmp_path: Path, content: str | None
) -> None:
    record = tmp_path / "rehearsal.json"
    if content is not None:
        record.write_text(content)
    with pytest.raises(InputError, match=rf"RANKLIFT_ARM_TOKEN_FILE = '{record}'.*fab rehearsal.env"):
        rehearsal_token({"RANKLIFT_ARM_TOKEN_FILE": str(record)})
    with pytest.raises(InputError, match=r"RANKLIFT_ARM_TOKEN_FILE: is not set.*fab rehearsal.env"):
        rehearsal_token({"RANKLIFT_ARM_ENDPOINT": "http://127.0.0.1:1"})


@pytest.mark.parametrize(
    ("variable", "left"),
    [
        ("RANKLIFT_ARM_ENDPOINT", "http://127.0.0.1:8442"),
        ("PULUMI_DEBUG_PROVIDERS", "azure-native:2"),
    ],
)
def test_what_a_shell_has_left_of_an_earlier_rehearsal_is_refused(
    tmp_path: Path, variable: str, left: str
) -> None:
    now = {**rehearsed("http://127.0.0.1:8443", tmp_path), "PULUMI_DEBUG_PROVIDERS": "azure-native:1"}
    assert rehearsal_token(now) == "the operator's token"
    with pytest.raises(
        InputError, match=f"{variable} = '{re.escape(left)}': is that of an earlier rehearsal"
    ):
        rehearsal_token({**now, variable: left})


DIRECTORY = {"ARM_TENANT_ID": "the rehearsal's", "ARM_CLIENT_ID": "c"}


def with_directory(folder: Path) -> dict[str, str]:
    """Variables of a rehearsal that has a directory, at a port where nobody listens."""
    variables = rehearsed("http://127.0.0.1:1", folder)
    record = Path(variables["RANKLIFT_ARM_TOKEN_FILE"])
    known = {"tenant_id": DIRECTORY["ARM_TENANT_ID"], "directory_port": 1}
    record.write_text(json.dumps(json.loads(record.read_text()) | known))
    return variables


@pytest.mark.parametrize("tenant", [{}, {"ARM_TENANT_ID": ""}, {"ARM_TENANT_ID": "another"}])
def test_variables_of_another_directory_are_not_used_in_a_rehearsal(
    tmp_path: Path, tenant: dict[str, str]
) -> None:
    given = {"ARM_CLIENT_ID": "c", "ARM_CLIENT_SECRET": "s", **tenant}
    assert rehearsal_token(with_directory(tmp_path) | given) == "the operator's token"
    assert rehearsal_token(rehearsed("http://127.0.0.1:1", tmp_path) | given) == "the operator's token"


@pytest.mark.parametrize("method", [{}, {"ARM_USE_MSI": "true"}, {"ARM_CLIENT_CERTIFICATE_PATH": "c.pem"}])
def test_a_sign_in_that_the_rehearsals_directory_lacks_is_refused(
    tmp_path: Path, method: dict[str, str]
) -> None:
    with pytest.raises(InputError, match="set ARM_CLIENT_SECRET or ARM_USE_OIDC=true, or unset it"):
        rehearsal_token(with_directory(tmp_path) | DIRECTORY | method)


@pytest.mark.parametrize("kind", REMOVABLE)
def test_everything_removable_is_removed_by_its_id(kind: str, tmp_path: Path) -> None:
    client = resource_client("subscription", rehearsed("http://127.0.0.1:1", tmp_path))
    with pytest.raises(ServiceRequestError):
        remove(client, "subscription", kind, defaultdict(lambda: "x"))


@pytest.mark.parametrize("answer", [None, ResourceNotFoundError("gone")])
def test_removing_waits_for_azure_and_takes_it_well_when_there_is_nothing(answer: Any) -> None:
    double = Mock()
    begun = double.resources.begin_delete_by_id
    begun.return_value.result.side_effect = answer
    inputs = {"resourceGroupName": "g", "virtualNetworkName": "v", "subnetName": "s", "addressPrefix": "-"}
    remove(double, "sub", "azure-native:network:Subnet", inputs)
    begun.assert_called_once_with(
        "/subscriptions/sub/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/s",
        api_version="2024-05-01",
    )
    begun.return_value.result.assert_called_once_with()


def test_blobs_of_an_account_are_asked_of_azure_or_of_the_rehearsals_port(tmp_path: Path) -> None:
    url = "https://acme.blob.core.windows.net"
    with blob_service(url, {}) as client:
        assert (client.url.rstrip("/"), client.account_name) == (url, "acme")
    with rehearsed_blobs(tmp_path, 8443) as environment, blob_service(url, environment) as client:
        assert client.url.rstrip("/") == "https://127.0.0.1:8443/acme"
        assert client.account_name == "acme"
    with (
        rehearsed_blobs(tmp_path, 0) as environment,
        pytest.raises(InputError, match="the rehearsal has no blobs: Azurite is not installed"),
    ):
        blob_service(url, environment)


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """What a proxy, which the shell names for everything, is sent."""
    requests: list[bytes] = []

    class Proxy(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            requests.append(self.rfile.readline())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, args=(0.01,)).start()
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.server_address[1]}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield requests
        proxy.shutdown()


def test_a_proxy_of_the_shell_gets_no_request_to_the_rehearsal_nor_its_token(
    tmp_path: Path, proxied: list[bytes]
) -> None:
    class Empty(Azure):
        def __call__(self, url: str, headers: Mapping[str, str]) -> Answer:
            self.asked.append(headers["Authorization"])
            return Answer(200, b'{"value": []}')

    azure = Empty()
    with served(azure) as url:
        environment = rehearsed(url, tmp_path)
        list(resource_client("subscription", environment).resources.list())
        found = clients("subscription", environment)
        list(found.compute.virtual_machine_scale_sets.list_all())
        list(found.network.virtual_networks.list_all())
    assert azure.asked == ["Bearer the operator's token"] * 3
    assert proxied == []


def test_a_proxy_of_the_shell_gets_no_request_for_the_rehearsals_blobs(
    tmp_path: Path, proxied: list[bytes]
) -> None:
    (tmp_path / "c.pem").write_text(Path(certifi.where()).read_text())
    with (
        rehearsed_blobs(tmp_path, 1) as environment,
        blob_service("https://acme.blob.core.windows.net", environment, retry_total=0) as service,
        pytest.raises(ServiceRequestError, match="Connection refused"),
    ):
        list(service.list_containers())
    assert proxied == []


@contextmanager
def rehearsed_blobs(folder: Path, port: int) -> Iterator[dict[str, str]]:
    """Variables of a rehearsal whose blob endpoint has this port."""
    record = folder / "rehearsal.json"
    record.write_text(
        json.dumps(
            {
                "token": "t",
                "arm_port": 81,
                "provider_port": 82,
                "blob_port": port,
                "blob_certificate": str(folder / "c.pem"),
            }
        )
    )
    yield {"RANKLIFT_ARM_ENDPOINT": "http://127.0.0.1:81", "RANKLIFT_ARM_TOKEN_FILE": str(record)}
