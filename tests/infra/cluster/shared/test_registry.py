"""A kind of shared storage is added by one file and one entry, and works from the settings to the mount."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from images.shared_mount import SHARED_FOLDER
from infra.cluster.shared.registry import KINDS
from infra.preflight.meters import premium_disk
from launch.errors import InputError
from playbooks.stack.cost_tables import print_plan
from tests.infra.cluster.shared.scratch import Scratch
from tests.infra.preflight.stack_figures import SETTINGS, config, figures, plan

ROOT = Path(__file__).parents[4]
PROGRAM = """
import json, sys
from tests.infra.cluster.shared import scratch
from tests.infra.recorded_program import record
scratch.add()
print(json.dumps(record(json.load(sys.stdin))))
"""
CHOSEN = {"nfs": "scratch", "scratchServer": "10.0.9.9"}


@pytest.fixture
def _added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "scratch", Scratch())


@pytest.fixture(scope="module")
def program() -> dict[str, Any]:
    """What the Pulumi program asks for with the kind, in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(SETTINGS | CHOSEN | {"retainData": "true"}),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.mark.usefixtures("_added")
def test_its_settings_are_read_and_checked() -> None:
    chosen = config(**CHOSEN)
    assert chosen.shared is not None
    assert (chosen.shared.kind, chosen.shared.options) == ("scratch", {"server": "10.0.9.9"})
    assert chosen.owns_data
    assert chosen.other_addresses == 2
    with pytest.raises(InputError, match="ranklift:scratchServer: is not set"):
        config(nfs="scratch")
    with pytest.raises(InputError, match=r"scratchServer = .*, but ranklift:nfs is vm; .* to scratch"):
        config(nfs="vm", scratchServer="10.0.9.9")


def test_a_kind_that_is_not_entered_is_refused_with_those_that_are() -> None:
    with pytest.raises(InputError, match="'scratch': is none of none, files, vm"):
        config(nfs="scratch")
    with pytest.raises(InputError, match=r"ranklift:scratchServer = .*: unknown setting"):
        config(scratchServer="10.0.9.9")


def test_the_program_makes_its_resources_where_data_is_kept(program: dict[str, Any]) -> None:
    journal = program["resources"]["azure-native:compute:Disk journal"]
    assert journal["resourceGroupName"] == "ranklift-dev-data"
    assert program["options"]["azure-native:compute:Disk journal"]["retainOnDelete"]
    nodes = "azure-native:compute:VirtualMachineScaleSet nodes"
    assert "journal" in program["options"][nodes]["dependsOn"]
    assert program["resources"][nodes]["tags"]["ranklift-nfs"] == "scratch"
    assert program["outputs"]["nfsMount"] == "10.0.9.9@tcp:/scratch"


def test_the_nodes_mount_it_at_their_first_boot(program: dict[str, Any]) -> None:
    nodes = program["resources"]["azure-native:compute:VirtualMachineScaleSet nodes"]
    profile = nodes["virtualMachineProfile"]["osProfile"]
    document = yaml.safe_load(base64.b64decode(profile["customData"]))
    entry = ["10.0.9.9@tcp:/scratch", SHARED_FOLDER, "lustre", "flock,_netdev", "0", "0"]
    assert entry in document["mounts"]
    assert any(f"mount {SHARED_FOLDER}" in line[-1] for line in document["runcmd"])


@pytest.mark.usefixtures("_added")
def test_a_plan_names_its_cost_and_what_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    disk = premium_disk(64)
    assert disk is not None
    found = plan(figures(meters={disk: 0.25}), **CHOSEN)
    known = {cost.part.what: cost.regular for cost in found.costs}
    assert (known["journal"], known["scratch server"]) == (0.25, None)
    assert "price of the scratch server: by contract" in found.unknowns
    print_plan(found)
    shown = capsys.readouterr()
    assert "ranklift-dev-journal" in shown.out + shown.err
    assert "by contract" in shown.out + shown.err
