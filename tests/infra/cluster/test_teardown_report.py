"""The teardown report; tests/azure sees it at the end of a destroyed stack."""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from infra.cluster.teardown_report import TeardownReportProvider, report_leftovers
from tests.infra.azure_answers import Azure, error, group, rehearsed, resource, served

ROOT = Path(__file__).parents[3]
PROPS = {"stack": "dev", "subscription": "", "retain": False}
NETWORK = "Microsoft.Network/virtualNetworks"


def reported(azure: Azure, **props: object) -> list[tuple[str, bool]]:
    lines: list[tuple[str, bool]] = []
    with served(azure) as url, tempfile.TemporaryDirectory() as folder:
        environment = rehearsed(url, Path(folder))
        report_leftovers(PROPS | props, environment, lambda line, bad: lines.append((line, bad)))
    return lines


def test_nothing_left_is_said_too() -> None:
    assert reported(Azure()) == [
        ("nothing of stack dev is left in subscription 00000000-0000-0000-0000-000000000001", False)
    ]


def test_what_is_left_is_named_with_its_price_as_a_warning() -> None:
    azure = Azure(
        groups=[group(state="Deleting")], resources=[resource("Microsoft.Network/publicIPAddresses", "stray")]
    )
    (whole, bad), (stray, _) = reported(azure)
    assert bad
    assert whole.endswith("resource group ranklift-dev in ranklift-dev, free, being deleted")
    assert stray.endswith("publicIPAddresses stray in ranklift-dev, 0.005 USD per hour")


def test_what_is_kept_on_purpose_is_no_warning() -> None:
    azure = Azure(groups=[group("ranklift-dev-data")])
    assert [
        (line.endswith("kept on purpose (ranklift:retainData or storageAccountId)"), bad)
        for line, bad in reported(azure, retain=True)
    ] == [(True, False)]


def test_a_long_list_is_cut_with_where_to_read_on() -> None:
    azure = Azure(groups=[group()], resources=[resource(NETWORK, f"n{i}") for i in range(30)])
    lines = [line for line, _ in reported(azure)]
    assert len(lines) == 21
    assert lines[-1] == "and 11 more: `fab account --stack dev` lists them"


def test_a_question_that_fails_stops_nothing() -> None:
    (line, bad), *more = reported(Azure(instead={"/resources": error(401, "ExpiredAuthenticationToken")}))
    assert bad
    assert more == []
    assert "the sign-in to Azure has expired; run `az login`; `fab account` repeats the query" in line


def test_a_failure_of_the_report_is_logged_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("infra.cluster.teardown_report.report_leftovers", lambda *_: 1 / 0)
    TeardownReportProvider().delete("teardown-report-dev", PROPS)
    said = capsys.readouterr().err
    assert "remaining resources not queried (ZeroDivisionError('division by zero'))" in said
    assert "`fab account` lists them" in said


@pytest.mark.parametrize("folder", ["infra", "images/build"])
def test_modules_of_a_program_shadow_no_package(folder: str) -> None:
    """Pulumi runs a program, and its providers, with the program's folder on the path."""
    modules = {path.stem for path in (ROOT / folder).iterdir() if path.suffix == ".py" or path.is_dir()}
    packages = {*sys.stdlib_module_names, *packages_distributions()}
    assert modules & packages - {"__main__", "__init__", "__pycache__"} == set()
