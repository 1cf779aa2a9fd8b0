"""The InfiniBand devices that a node's ranks are bound to."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.remote.node.infiniband import rank_defaults
from launch.remote.node.prepare import Unfit


def sysfs(folder: Path, *devices: tuple[str, str, str]) -> str:
    """``/sys/class/infiniband`` with these devices: name, link layer, state."""
    for name, layer, state in devices:
        port = folder / name / "ports/1"
        port.mkdir(parents=True)
        (port / "link_layer").write_text(f"{layer}\n")
        (port / "state").write_text(f"{state}\n")
    return str(folder)


ETHERNET = ("mlx5_an0", "Ethernet", "4: ACTIVE")


@pytest.mark.parametrize("name", ["mlx5_ib0", "mlx5_0", "mlx4_0"])
def test_the_infiniband_device_is_found_by_its_link_layer_whatever_its_name(
    tmp_path: Path, name: str
) -> None:
    folder = sysfs(tmp_path, ETHERNET, (name, "InfiniBand", "4: ACTIVE"))
    assert rank_defaults({}, folder) == {"UCX_NET_DEVICES": f"{name}:1", "NCCL_IB_HCA": f"={name}:1"}


def test_all_devices_are_listed_in_the_order_of_their_numbers_by_whole_names(tmp_path: Path) -> None:
    devices = [(f"mlx5_{number}", "InfiniBand", "4: ACTIVE") for number in range(12)]
    ports = ",".join(f"mlx5_{number}:1" for number in range(12))
    assert rank_defaults({}, sysfs(tmp_path, *devices)) == {
        "UCX_NET_DEVICES": ports,
        "NCCL_IB_HCA": f"={ports}",
    }


def test_a_port_without_a_link_is_not_used(tmp_path: Path) -> None:
    folder = sysfs(tmp_path, ("mlx5_ib0", "InfiniBand", "1: DOWN"), ("mlx5_ib1", "InfiniBand", "4: ACTIVE"))
    assert rank_defaults({}, folder)["UCX_NET_DEVICES"] == "mlx5_ib1:1"


@pytest.mark.parametrize(
    ("devices", "found"),
    [
        ((), "found: no device;"),
        ((ETHERNET,), r"found: mlx5_an0 \(Ethernet, 4: ACTIVE\);"),
        ((("mlx5_ib0", "InfiniBand", "1: DOWN"),), r"found: mlx5_ib0 \(InfiniBand, 1: DOWN\);"),
    ],
)
def test_a_node_without_a_usable_one_is_unfit_and_says_what_it_has(
    tmp_path: Path, devices: tuple[tuple[str, str, str], ...], found: str
) -> None:
    with pytest.raises(Unfit, match=f"no active InfiniBand port in .*{found} `fab replace` the node"):
        rank_defaults({}, sysfs(tmp_path / "class", *devices))


def test_who_wants_no_infiniband_gets_none(tmp_path: Path) -> None:
    assert rank_defaults({"NCCL_IB_DISABLE": "1"}, str(tmp_path / "none")) == {}


@pytest.mark.parametrize(
    ("transports", "bound"),
    [
        ("rc,sm,self", True),
        ("all", True),
        ("^tcp", True),
        ("^ib", False),
        ("^all", False),
        ("sm, rc", True),
        ("\\rc_mlx5,self", True),
        ("sm,rc_x", True),
        ("tcp", False),
        ("sm,tcp", False),
    ],
)
def test_ucx_is_bound_unless_its_transports_could_not_use_the_devices(
    tmp_path: Path, transports: str, bound: bool
) -> None:
    folder = sysfs(tmp_path, ("mlx5_ib0", "InfiniBand", "4: ACTIVE"))
    found = rank_defaults({"UCX_TLS": transports}, folder)
    assert ("UCX_NET_DEVICES" in found, "NCCL_IB_HCA" in found) == (bound, True)


def test_a_port_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    folder = sysfs(tmp_path, ("mlx5_ib0", "InfiniBand", "4: ACTIVE"))
    state = Path(folder) / "mlx5_ib0" / "ports" / "1" / "state"
    state.unlink()
    state.mkdir()  # opens, and cannot be read
    with pytest.raises(Unfit, match=r"mlx5_ib0 \(InfiniBand, Is a directory\)"):
        rank_defaults({}, folder)
