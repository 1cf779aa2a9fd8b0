"""What the catalogue's row promises of a node."""

from __future__ import annotations

import pytest

from catalogue.sizes import catalogue, lookup
from launch.promise import promise_of


def test_a_size_promises_the_figures_of_its_row() -> None:
    promise = promise_of("Standard_ND96asr_v4")
    sources = promise.pop("sources")
    assert promise == {
        "size": "Standard_ND96asr_v4",
        "hcas": 8,
        "hca_gbps": 200,
        "gpus": 8,
        "gpu": "A100",
        "vendor": "nvidia",
        "memory_gib": 886,
        "fabric_manager": 1,
        "nvme": 1,
        "gpudirect": 1,
        "topology": "/opt/microsoft/ndv4-topo.xml",
    }
    assert sources["memory_gib"] == "azurehpc-health-checks"


@pytest.mark.parametrize("size", [size.name for size in catalogue() if not size.is_family])
def test_each_figure_has_its_source(size: str) -> None:
    promise = promise_of(size)
    assert set(promise["sources"]) == set(promise) - {"size", "sources"}
    assert all(promise["sources"].values())


def test_what_no_source_gives_is_not_promised() -> None:
    assert lookup("Standard_ND96isr_MI300X_v5").seen_memory_gib is None
    assert "memory_gib" not in promise_of("Standard_ND96isr_MI300X_v5")
    assert promise_of("Standard_ND96isr_MI300X_v5")["vendor"] == "amd"


def test_a_connectx3_is_not_promised_because_ofed_does_not_drive_it() -> None:
    assert promise_of("Standard_NC24rs_v3")["hcas"] == 0
