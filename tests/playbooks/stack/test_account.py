"""What `fab account` and the end of a teardown show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from invoke.context import Context

from infra.arm.errors import NotSignedIn
from playbooks.project import Stack
from playbooks.stack.account import account, report_left
from tests.infra import azure_answers
from tests.infra.azure_answers import Azure, error, group, rehearsed, resource, served
from tests.playbooks.screen import hold, screen
from tests.playbooks.typed import fake_pulumi

GOLDEN = Path(__file__).parent / "golden"
NODES = resource("Microsoft.Compute/virtualMachineScaleSets", "ranklift-dev")
DETAILS = {
    "/virtualMachineScaleSets/ranklift-dev": azure_answers.scale_set(4),
    "/rldev/fileServices/default/shares": {"value": []},
}
DATA = resource("Microsoft.Storage/storageAccounts", "rldev", "ranklift-dev-data")
OURS = [
    NODES,
    resource("Microsoft.Network/natGateways", "ranklift-dev-nat"),
    resource("Microsoft.Network/publicIPAddresses", "ranklift-dev-nat-ip", createdTime=None),
    resource("Microsoft.Network/virtualNetworks", "ranklift-dev-vnet", provisioningState="Deleting"),
]
PRODS = resource("Microsoft.Network/publicIPAddresses", "ranklift-prod-lb-ip", "ranklift-prod", "prod")
THEIRS = resource("Microsoft.Network/networkInterfaces", "somebodys", stack=None)

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "left-nothing": ({}, ""),
    "left-kept": ({"groups": [group("ranklift-dev-data")], "resources": [DATA]}, "true"),
    "left-some": ({"groups": [group()], "resources": [*OURS, PRODS, THEIRS]}, ""),
}


@pytest.fixture
def azure() -> Azure:
    return Azure(details=DETAILS)


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, azure: Azure) -> Iterator[Stack]:
    """Stack ``dev``, whose Azure is the double."""
    (tmp_path / "Pulumi.yaml").write_text("name: ranklift\nruntime: python\n")
    monkeypatch.setenv("RANKLIFT_PROJECT", str(tmp_path))
    monkeypatch.setenv("RANKLIFT_STACK", "dev")
    script = f'case "$2" in ls) cat {tmp_path}/stacks;; *) cat {tmp_path}/state-"$4";; esac'
    monkeypatch.setenv("PATH", fake_pulumi(tmp_path, script)["PATH"])
    remember(tmp_path, dev=[group()], prod=[group("ranklift-prod")])
    with served(azure) as url:
        variables = rehearsed(url, tmp_path)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield Stack("dev", tmp_path, variables)


def remember(folder: Path, **stacks: list[dict[str, Any]]) -> None:
    """What Pulumi has, by stack."""
    (folder / "stacks").write_text(json.dumps([{"name": f"organization/ranklift/{name}"} for name in stacks]))
    for name, resources in stacks.items():
        state = folder / f"state-organization/ranklift/{name}"
        state.parent.mkdir(parents=True, exist_ok=True)
        state.write_text(json.dumps({"deployment": {"resources": resources}}))


def fill(azure: Azure, stack: Stack, name: str) -> None:
    answers, retain = CASES[name]
    for what, given in answers.items():
        setattr(azure, what, given)
    if retain:
        stack.configuration.write_text(f"config:\n  ranklift:retainData: {retain}\n")


@pytest.mark.parametrize(
    ("name", "clean"), [("left-nothing", True), ("left-kept", True), ("left-some", False)]
)
def test_a_teardown_ends_with_what_is_left(
    name: str, clean: bool, azure: Azure, stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(azure, stack, name)
    assert report_left(stack) is clean
    hold(capsys.readouterr().out, GOLDEN / f"{name}.txt")


def test_an_account_that_a_stack_kept_and_was_given_again_is_there_on_purpose(
    azure: Azure, stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    azure.groups, azure.resources = [group("ranklift-dev-data")], [DATA]
    stack.configuration.write_text(f"config:\n  ranklift:storageAccountId: {DATA['id']}\n")
    assert report_left(stack)
    other = DATA["id"].replace("ranklift-dev-data", "corporate")
    stack.configuration.write_text(f"config:\n  ranklift:storageAccountId: {other}\n")
    assert not report_left(stack)


def test_an_account_has_every_stack_of_the_subscription(
    azure: Azure, stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    azure.groups, azure.resources = [group(), group("ranklift-prod", "prod")], [*OURS, PRODS, THEIRS]
    account(Context())
    hold(capsys.readouterr().out, GOLDEN / "account.txt")


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("colours", [True, False], ids=["colours", "plain"])
def test_an_account_and_what_a_teardown_left_fit_the_terminal(
    azure: Azure, stack: Stack, monkeypatch: pytest.MonkeyPatch, columns: int, colours: bool
) -> None:
    azure.groups, azure.resources = [group(), group("ranklift-prod", "prod")], [*OURS, PRODS]
    terminal = screen(monkeypatch, columns, colours=colours)
    account(Context())
    report_left(stack)
    shown = terminal.getvalue()
    hold(shown, GOLDEN / f"account-{columns}-{'colours' if colours else 'plain'}.txt")
    table = shown[: shown.index("left of stack dev")]
    assert colours or max(map(len, table.splitlines())) <= columns
    assert all(name in shown for name in ("virtual machine scale set", "ranklift-dev-nat-ip", "64,327.60"))


def test_what_pulumi_does_not_know_here_is_marked(
    azure: Azure, stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    azure.groups, azure.resources = [group(), group("ranklift-prod", "prod")], [*OURS, PRODS]

    def unknown() -> dict[str, bool | None]:
        account(Context(), json=True)
        return {one["name"]: one["in_state"] for one in json.loads(capsys.readouterr().out)["things"]}

    assert set(unknown().values()) == {True}
    # A state that has lost all but the scale set, and a colleague's stack.
    remember(stack.project, dev=[NODES])
    found = unknown()
    assert [name for name, known in found.items() if known] == ["ranklift-dev"]  # the set, not the group
    account(Context())
    assert capsys.readouterr().out.count("not in this project's state") == len(OURS) + 2


def test_without_an_answer_of_pulumis_nothing_is_marked_and_that_is_said(
    azure: Azure, stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    azure.groups = [group()]
    for lost in ("state-organization/ranklift/dev", "stacks"):
        (stack.project / lost).unlink()
        account(Context())
        shown = capsys.readouterr()
        assert "not in" not in shown.out
        assert "which resources are in Pulumi's state is unknown: pulumi stack" in shown.err


def test_an_account_of_one_stack_has_nothing_of_another(
    azure: Azure, stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    azure.groups, azure.resources = [group(), group("ranklift-prod", "prod")], [*OURS, PRODS]
    account(Context(), stack="dev", json=True)
    found = json.loads(capsys.readouterr().out)
    assert {one["stack"] for one in found["things"]} == {"dev"}
    assert [one["per_hour"] for one in found["things"]] == [0.0, 88.12, 0.045, 0.005, 0.0]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("Microsoft.ManagedIdentity/userAssignedIdentities", "user assigned identity"),
        ("Microsoft.Compute/galleries", "gallery"),
        ("Microsoft.Network/publicIPAddresses", "public IP address"),
        ("Microsoft.Network/publicIPPrefixes", "public IP prefix"),
        ("Microsoft.Compute/diskAccesses", "disk access"),
        ("Microsoft.Compute/virtualMachineScaleSets", "virtual machine scale set"),
        ("Microsoft.Sql/databases", "database"),
        ("Microsoft.Cache/redis", "redis"),
        ("Microsoft.Monitor/accounts", "Azure Monitor workspace"),
    ],
)
def test_one_thing_is_named_as_one(
    azure: Azure, stack: Stack, capsys: pytest.CaptureFixture[str], kind: str, message: str
) -> None:
    azure.groups, azure.resources = [group()], [resource(kind, "it")]
    report_left(stack)
    assert f" {message}  " in capsys.readouterr().out


def test_an_empty_subscription_is_said_to_be_empty(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    account(Context())
    assert capsys.readouterr().out.startswith("nothing of any stack exists in subscription 0000")


def test_who_is_not_signed_in_learns_nothing_wrong(azure: Azure, stack: Stack) -> None:
    azure.instead["/resourcegroups"] = error(401, "ExpiredAuthenticationToken")
    with pytest.raises(NotSignedIn):
        report_left(stack)
