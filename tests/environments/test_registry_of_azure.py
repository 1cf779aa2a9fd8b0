"""``ranklift:containerRegistry`` from `fab up` to a rank: the nodes' identity pulls, by its role there.

And environments that Microsoft publishes, by the names that Azure ML's job files give them.
"""

from __future__ import annotations

import shlex
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from infra.naming import CONTAINER_REGISTRY, CONTAINER_REPOSITORIES, own_uuid, right_on
from tests.e2e.workplace import Workplace
from tests.environments.azure_registry_server import MICROSOFT, AzureRegistry, azure_registry
from tests.rehearsal.registry import registry, tiny_layer

pytestmark = [pytest.mark.environments, pytest.mark.timeout(300)]

NAME, STACK = "rlcorporate", "rehearsal"
GROUP = "/resourceGroups/corporate"
REGISTRY = f"{GROUP}/providers/Microsoft.ContainerRegistry/registries/{NAME}"
ANOTHER_ROLE = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
"""Storage Blob Data Reader, which allows nothing in a registry."""
CURATED = "azureml/curated/sklearn-1.5"
RIGHTS_API = "2022-04-01"


@dataclass(frozen=True)
class Company:
    """A cluster and its company's registry."""

    cluster: Workplace
    registry: AzureRegistry
    id: str
    """The registry's."""

    @property
    def launch(self) -> list[str]:
        """A job that prints a file of the image."""
        image = f"{self.registry.host}/team/tiny:1"
        return ["launch.torch", "--image", image, "--runtime", "charliecloud", "--", "cat", "/etc/made"]


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    """Two nodes with the registry's id in their stack's settings, who know its address and certificate."""
    made = Workplace(tmp_path_factory.mktemp("company"))
    folder = tmp_path_factory.mktemp("registry")

    def may_pull(token: str) -> bool:
        """Ask the rehearsed Azure whether the token's identity has AcrPull's right."""
        url = f"http://127.0.0.1:{made.record.arm_port}{identifier}/pull?api-version=2023-01-01-preview"
        asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked)
        with refused.value:
            return refused.value.code not in (401, 403)

    try:
        made.start(2, node_python=None)
        identifier = f"/subscriptions/{made.record.subscription_id}{REGISTRY}"
        for path in (identifier.partition("/providers/")[0], identifier):
            made.ask("PUT", path, {"location": "southcentralus", "properties": {}}, version="2024-03-01")
        with (
            registry(folder) as images,
            azure_registry(folder, NAME, images, may_pull) as of_azure,
        ):
            images.push("team/tiny", "1", tiny_layer(**{"/etc/made": "by the company\n"}))
            for tag in ("7", "latest"):
                images.push(CURATED, tag, tiny_layer(**{"/etc/made": f"by Microsoft as {tag}\n"}))
            made.configure(STACK, nodeCount=2, containerRegistry=identifier)
            made.fab("up")
            (hosts,) = made.folder.root.glob("nodes/*/vnet/hosts")  # in place of Azure's public DNS
            with hosts.open("a") as file:
                file.write(f"{of_azure.address} {of_azure.host} {MICROSOFT}\n")
            trust = shlex.quote(of_azure.certificate.read_text())
            for host in (of_azure.host, MICROSOFT):
                place = f"~/.config/containers/certs.d/{host}"
                made.fab("exec", "--", "sh", "-c", f"mkdir -p {place} && printf %s {trust} >{place}/ca.crt")
            yield Company(made, of_azure, identifier)
    finally:
        made.close()


def test_the_nodes_identity_pulls_without_credentials_of_the_user(company: Company) -> None:
    ran = company.cluster.fab(*company.launch)
    assert ran.out.count("by the company") == 2
    assert company.registry.asked.count("/oauth2/exchange") >= 1
    token = company.registry.refresh_token
    written = company.cluster.fab(
        "exec", "--json", "--", "sh", "-c", f"grep -rlF {token} ~/.ranklift; true"
    ).json()
    assert {answer["stdout"] for answer in written.values()} == {""}
    assert token not in ran.out + ran.err


def test_an_identity_with_another_role_is_refused_as_one_without(company: Company) -> None:
    own = company.cluster.record.subscription_id
    assignments = f"{company.id}/providers/Microsoft.Authorization/roleAssignments"
    purposes = (CONTAINER_REGISTRY, CONTAINER_REPOSITORIES)
    rights = [f"{assignments}/{own_uuid(STACK, own, right_on(purpose))}" for purpose in purposes]
    principals = set()
    for right in rights:
        principals.add(company.cluster.ask("GET", right, version=RIGHTS_API)[0]["properties"]["principalId"])
        company.cluster.ask("DELETE", right, version=RIGHTS_API)
    (principal,) = principals
    role = f"/subscriptions/{own}/providers/Microsoft.Authorization/roleDefinitions/{ANOTHER_ROLE}"
    properties = {"principalId": principal, "principalType": "ServicePrincipal", "roleDefinitionId": role}
    another = f"{assignments}/{uuid.uuid4()}"
    company.cluster.ask("PUT", another, {"properties": properties}, version=RIGHTS_API)
    refused = company.cluster.fab(*company.launch, status=1)
    assert f"{company.registry.host} refuses the nodes' identity (HTTP 401)" in refused.err
    assert "ranklift:containerRegistry" in refused.err
    company.cluster.ask("DELETE", another, version=RIGHTS_API)


@pytest.mark.parametrize(
    ("environment", "tag"),
    [
        ("azureml:AzureML-sklearn-1.5:7", "7"),
        ("azureml:AzureML-sklearn-1.5@latest", "latest"),
        ("azureml://registries/azureml/environments/sklearn-1.5/labels/latest", "latest"),
        ("azureml://registries/azureml/environments/sklearn-1.5/versions/7", "7"),
    ],
)
def test_a_job_file_runs_in_an_environment_that_microsoft_publishes(
    company: Company, environment: str, tag: str
) -> None:
    (company.cluster.own / "curated.yml").write_text(
        f"command: cat /etc/made\nenvironment: {environment}\n"
        "distribution: {type: pytorch, process_count_per_instance: 1}\nresources: {instance_count: 2}\n"
    )
    ran = company.cluster.fab("launch", "curated.yml", "--runtime", "charliecloud")
    assert ran.out.count(f"by Microsoft as {tag}\n") == 2
