"""What `fab plan` shows, asks and refuses; over HTTP, from an Azure that answers as Azure does."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from infra.arm.errors import NotSignedIn
from infra.arm.rest import Answer
from infra.naming import own_uuid
from infra.preflight.refusal import NotGranted
from playbooks.cli import output
from playbooks.project import Stack
from playbooks.stack import cost_tables, up
from playbooks.stack.plan import plan
from playbooks.stack.preflight import check_plan
from rehearsal.arm.offers import market
from tests.infra import azure_answers
from tests.infra.azure_answers import (
    FAMILY,
    PLACE,
    SUBSCRIPTION,
    Azure,
    closed,
    error,
    forbidden,
    price,
    rehearsed,
    served,
    sku,
    usage,
)
from tests.playbooks.screen import hold, screen
from tests.playbooks.typed import fake_pulumi

DATA, NODES = "ranklift-dev-data", "ranklift-dev"
GOLDEN = Path(__file__).parent / "golden"
SETTINGS = """\
config:
  ranklift:vmSize: Standard_ND40rs_v2
  ranklift:nodeCount: "4"
  ranklift:location: southcentralus
  ranklift:sshFrom: 203.0.113.7
"""


@pytest.fixture
def azure() -> Azure:
    return Azure()


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, azure: Azure) -> Iterator[Stack]:
    """Stack ``dev``, whose Azure is the double."""
    (tmp_path / "Pulumi.yaml").write_text("name: ranklift\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text(SETTINGS)
    monkeypatch.setenv("RANKLIFT_PROJECT", str(tmp_path))
    monkeypatch.setenv("RANKLIFT_STACK", "dev")
    monkeypatch.setenv("ARM_SUBSCRIPTION_ID", SUBSCRIPTION)
    with served(azure) as url:
        variables = rehearsed(url, tmp_path)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield Stack("dev", tmp_path, variables | {"ARM_SUBSCRIPTION_ID": SUBSCRIPTION})


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The stacks for which `fab up` was run."""
    found: list[str | None] = []
    monkeypatch.setattr(up, "up", lambda _, stack=None, **_more: found.append(stack))
    return found


def configure(stack: Stack, **settings: str) -> None:
    lines = "".join(f'  ranklift:{key}: "{value}"\n' for key, value in settings.items())
    stack.configuration.write_text(SETTINGS + lines)


def ended(**options: Any) -> int:
    """The exit status of the task."""
    try:
        plan(Context(), **options)
    except Exit as error:
        return int(error.code)
    return 0


def sit_down(monkeypatch: pytest.MonkeyPatch, answer: str) -> list[str]:
    """Somebody at a terminal, who answers so; gives the questions."""
    questions: list[str] = []

    def answered(question: str) -> str:
        questions.append(question)
        if answer == "^D":
            raise EOFError
        return answer

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", answered)
    monkeypatch.setattr(cost_tables, "print_plan", lambda found: None)
    return questions


CASES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "plan": ({}, {}),
    "plan-spot-private": ({}, {"spot": "true", "access": "private", "maxPrice": "20"}),
    "plan-grown": ({"there": azure_answers.scale_set(3)}, {"ephemeralOsDisk": "true"}),
    "plan-refused": (
        {
            "prices": [price(22.03)],
            "usages": [usage("cores", 100, 12, "Total Regional vCPUs"), usage(FAMILY, 40, 0, "NDSv2 vCPUs")],
            "skus": [sku(restrictions=(closed(),)), sku(place="eastus")],
        },
        {"maxPrice": "50"},
    ),
    "plan-unknown": ({"prices": [], "skus": [sku(zones=())]}, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_plan_reads_like_this(
    name: str, azure: Azure, stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    answers, settings = CASES[name]
    for what, given in answers.items():
        setattr(azure, what, given)
    configure(stack, **settings)
    status = ended()
    shown = capsys.readouterr()
    text = f"{shown.out}-- stderr --\n{shown.err}-- exit status {status}\n"
    hold(text, GOLDEN / f"{name}.txt")


@pytest.mark.usefixtures("stack")
@pytest.mark.parametrize("columns", [40, 60, 80, 120])
@pytest.mark.parametrize("colours", [True, False], ids=["colours", "plain"])
def test_a_plans_tables_fit_the_terminal_and_break_no_name(
    monkeypatch: pytest.MonkeyPatch, columns: int, colours: bool
) -> None:
    monkeypatch.setattr(output, "ask", lambda _: False)
    terminal = screen(monkeypatch, columns, colours=colours)
    assert ended() == 0
    shown = terminal.getvalue()
    hold(shown, GOLDEN / f"plan-{columns}-{'colours' if colours else 'plain'}.txt")
    tables = shown[shown.index("\n\n") : shown.index("offered there")]
    assert colours or max(map(len, tables.splitlines())) <= columns
    names = ("node Standard_ND40rs_v2", "ranklift-dev-nat-ip", "all known, an hour", "88.38", "387.44")
    assert all(name in shown for name in names)


def test_json_is_the_same_plan(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["regular_per_hour"] == pytest.approx(88.175 + 4 * 38.02 / 730)
    assert found["refusals"] == []
    assert [line["needed"] for line in found["quotas"]] == [160, 160]


def test_existing_disks_are_priced_by_their_own_size(
    azure: Azure, stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(stack, osDiskGib="512")
    azure.there, azure.os_disks = azure_answers.scale_set(3), [256, 256, 256]
    azure.prices.append(azure_answers.disk(73.22) | {"meterName": "P20 LRS Disk", "skuName": "P20 LRS"})
    assert ended(json=True) == 0
    found = json.loads(capsys.readouterr().out)
    disks = {
        cost["part"]["note"]: cost["regular"] for cost in found["costs"] if "GiB" in cost["part"]["note"]
    }
    assert disks == {
        "256 GiB each": pytest.approx(3 * 38.02 / 730),
        "512 GiB each": pytest.approx(73.22 / 730),
    }


def test_a_toy_size_from_outside_passes_fab_plan(
    azure: Azure, stack: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stack.configuration.write_text(SETTINGS.replace("Standard_ND40rs_v2", "Standard_TOY6r_v1"))
    assert ended(json=True) == 2
    assert "vmSize = 'Standard_TOY6r_v1': is not a known size" in capsys.readouterr().err
    monkeypatch.setenv("RANKLIFT_SIZES", str(Path(__file__).parents[2] / "catalogue/toy.toml"))
    azure.skus = list(market.skus([PLACE]))
    azure.prices = market.prices({"armRegionName": PLACE})
    azure.usages = [usage("cores", 400), usage("standardTOYFamily", 400)]
    assert ended(json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["refusals"] == []
    assert [(line["name"], line["needed"]) for line in found["quotas"]] == [
        ("standardTOYFamily", 24),
        ("cores", 24),
    ]
    assert found["regular_per_hour"] == pytest.approx(4 * 2 * 3.0, rel=0.1)


def test_nobody_is_asked_where_there_is_no_terminal(stack: Stack, made: list[str | None]) -> None:
    assert ended() == 0
    assert made == []


@pytest.mark.parametrize(
    ("answer", "goes_on"), [("y", True), ("Yes ", True), ("n", False), ("", False), ("^D", False)]
)
def test_at_a_terminal_it_asks_and_a_yes_makes_the_cluster(
    answer: str, goes_on: bool, stack: Stack, made: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = sit_down(monkeypatch, answer)
    assert ended(stack="dev") == 0
    assert questions == ["Create it? [y/N] "]
    assert made == (["dev"] if goes_on else [])


def test_yes_asks_nobody(stack: Stack, made: list[str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    questions = sit_down(monkeypatch, "n")
    assert ended(yes=True) == 0
    assert (questions, made) == ([], [None])


def test_what_is_refused_is_neither_asked_about_nor_made(
    azure: Azure, stack: Stack, made: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    azure.usages[:] = [usage("cores", 400), usage(FAMILY, 0)]
    questions = sit_down(monkeypatch, "y")
    assert ended() == ended(yes=True) == 1
    assert (questions, made) == ([], [])


def test_another_number_of_nodes_is_only_planned_for(
    stack: Stack, made: list[str | None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ended(nodes="2", json=True) == 0
    assert json.loads(capsys.readouterr().out)["nodes"] == 2
    questions = sit_down(monkeypatch, "y")
    assert ended(nodes="2", yes=True) == 0
    assert (questions, made) == ([], [])


@pytest.mark.parametrize("nodes", ["0", "many", "-1", "400"])
def test_a_wrong_number_of_nodes_is_wrong_input(nodes: str, azure: Azure, stack: Stack) -> None:
    assert ended(nodes=nodes) == 2
    assert azure.asked == []


def test_a_wrong_configuration_asks_azure_nothing(azure: Azure, stack: Stack) -> None:
    configure(stack, spot="perhaps")
    assert ended() == 2
    stack.configuration.unlink()
    assert ended() == 2
    assert azure.asked == []


def test_a_plan_says_how_much_time_is_left(
    azure: Azure, stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    made = datetime.now(UTC) - timedelta(hours=2.5, seconds=5)
    azure.there = azure_answers.scale_set(0, created=made.isoformat())
    configure(stack, ttlHours="6")
    assert ended() == 0
    until = (made + timedelta(hours=6)).strftime("%Y-%m-%d %H:%M")
    printed = f"lifetime (ranklift:ttlHours): 3.5 hours left, until {until} UTC"
    assert printed in capsys.readouterr().out.splitlines()
    configure(stack, ttlHours="2")
    assert ended() == 1
    shown = capsys.readouterr()
    assert "(ranklift:ttlHours): over since" in shown.out
    assert "time: the cluster's lifetime ended at" in shown.err


@pytest.mark.parametrize(
    ("script", "refused"),
    [
        ("echo \"error: no stack named 'dev' found\" >&2; exit 6", True),
        ("echo '{}'", True),
        (
            f"echo '{json.dumps({'deployment': {'resources': [*map(azure_answers.group, (DATA, NODES))]}})}'",
            False,
        ),
    ],
)
@pytest.mark.parametrize(("group", "about"), [(DATA, "data"), (NODES, "state")])
def test_a_group_of_the_stacks_is_in_the_way_unless_pulumi_knows_it(
    group: str, about: str, script: str, refused: bool, azure: Azure, stack: Stack, tmp_path: Path
) -> None:
    azure.groups = [azure_answers.group(group)]
    configure(stack, storage="serviceEndpoint", retainData="true")
    known = replace(stack, environment={**stack.environment, **fake_pulumi(tmp_path, script)})
    if not refused:
        assert check_plan(known).refusals == ()
        return
    with pytest.raises(NotGranted, match=f"{about}: resource group {group} already exists"):
        check_plan(known)


def test_a_given_account_is_asked_who_may_reach_it_and_what_rights_are_on_it(
    azure: Azure, stack: Stack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    account = "/subscriptions/s-2/resourceGroups/corp/providers/Microsoft.Storage/storageAccounts/corpdata"
    azure.details["/storageAccounts/corpdata"] = {"properties": {"networkAcls": {"defaultAction": "Deny"}}}
    azure.instead["/roleAssignments/"] = error(404, "RoleAssignmentNotFound")
    configure(stack, storage="serviceEndpoint", storageAccountId=account)
    check_plan(stack)
    printed = (
        "warning: the firewall of storage account corpdata does not let the nodes' subnet in: after `fab up`"
    )
    assert printed in capsys.readouterr().err
    right = f"/roleAssignments/{own_uuid('dev', SUBSCRIPTION, 'data-right')}"
    azure.instead = {"containers/results": error(404, "RoleAssignmentNotFound")}
    azure.details[right] = {}
    fake = fake_pulumi(tmp_path, "echo \"error: no stack named 'dev' found\" >&2; exit 6")
    with pytest.raises(NotGranted, match=rf"az role assignment delete --ids {account}\S+{right}`"):
        check_plan(replace(stack, environment={**stack.environment, **fake}))


# -- preflight


def test_preflight_gives_the_plan_or_raises_all_that_speaks_against_it(azure: Azure, stack: Stack) -> None:
    assert check_plan(stack).adding == 4
    assert check_plan(stack, nodes=5).adding == 5
    with pytest.raises(NotGranted, match="240 more are needed, 200 are left"):
        check_plan(stack, nodes=6)


def test_other_regions_are_asked_for_only_when_this_one_has_not_the_size(azure: Azure, stack: Stack) -> None:
    check_plan(stack)
    assert sum("Microsoft.Compute/skus" in url for url in azure.asked) == 1
    azure.skus = [sku(place="eastus")]
    with pytest.raises(NotGranted, match="one that offers it: eastus"):
        check_plan(stack)


@pytest.mark.parametrize(
    ("word", "answer", "text"),
    [
        (
            "/usages",
            forbidden("Microsoft.Compute/locations/usages/read"),
            "lacks the right Microsoft.Compute/loc",
        ),
        ("/skus", error(400, "BadRequest", "oh"), "whether southcentralus offers"),
    ],
)
def test_what_could_not_be_asked_is_refused_with_the_reason(
    word: str, answer: Answer, text: str, azure: Azure, stack: Stack
) -> None:
    azure.instead[word] = answer
    with pytest.raises(NotGranted, match=text):
        check_plan(stack)


def test_an_expired_sign_in_is_one_line(
    azure: Azure, stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    azure.instead["/subscriptions/"] = error(401, "ExpiredAuthenticationToken", "The token is too old.")
    with pytest.raises(NotSignedIn):
        check_plan(stack)
    assert ended() == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "error: the sign-in to Azure has expired; run `az login`\n")


def test_prices_out_of_reach_stop_nobody_without_a_limit(azure: Azure, stack: Stack) -> None:
    azure.instead["/api/retail/prices"] = error(400, "ServiceUnavailable", "later")
    assert any("ServiceUnavailable" in text for text in check_plan(stack).unknowns)
    configure(stack, maxPrice="100000")
    with pytest.raises(NotGranted, match=r"price: .* is unknown"):
        check_plan(stack)
