"""Files of sizes: what they may hold, and that every mistake in one is reported by size and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalogue.rows import NOTHING, CatalogueError, Entries, read
from catalogue.sizes import MORE, catalogue, fabric_settings, find, lookup
from launch.errors import InputError

TOY = Path(__file__).with_name("toy.toml")
GOOD = """\
[settings.default]
source = "a test"
env = { A = "1" }

[[size]]
name = "Toy_1"
facts = [{ source = "a test", vcpus = 2, gpus = 0, rdma = true, sriov = true, hcas = 1 }]
"""


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def problems(text: str, known: Entries = NOTHING) -> list[str]:
    with pytest.raises(CatalogueError) as refused:
        read(text, "toy.toml", known)
    assert str(refused.value).splitlines() == [str(error) for error in refused.value.errors]
    return [f"{error.key}: {error.problem}" for error in refused.value.errors]


def test_a_row_is_a_size_with_the_source_of_each_figure() -> None:
    (size,) = read(GOOD, "toy.toml", NOTHING).sizes
    assert (size.name, size.vcpus, size.slots, size.memory_gib) == ("Toy_1", 2, 2, None)
    assert size.sources == dict.fromkeys(("vcpus", "gpus", "rdma", "sriov", "hcas"), "a test")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("vcpus = 2", "vcpus = 'two'", "Toy_1: vcpus: is not int"),
        ("vcpus = 2", "vcpus = true", "Toy_1: vcpus: is not int"),
        ("vcpus = 2", "vcpus = -2", "Toy_1: vcpus: is not int"),
        ("vcpus = 2", "cpus = 2", "Toy_1: cpus: is not a figure"),
        ("vcpus = 2", "note = 'fast'", "Toy_1: note: is not a figure"),
        ("hcas = 1 }", "hcas = 1 }, { source = 'b', vcpus = 3 }", "Toy_1: vcpus: is given twice"),
        ("vcpus = 2", "link = 'XDR'", "Toy_1: link: is not FDR or EDR or HDR or NDR"),
        ("vcpus = 2", "retirement = '2027-01-01'", "Toy_1: retirement: is not date"),
        ("vcpus = 2", "retirement = 2027-01-01", "Toy_1: instead: is missing"),
        ("vcpus = 2", "retired = true", "Toy_1: instead: is missing"),
        ("vcpus = 2", "regions = ['eastus', 1]", "Toy_1: regions: is not list of str"),
        ("vcpus = 2", "gpu = 'H100'", "Toy_1: gpu: contradicts gpus = 0"),
        ("vcpus = 2", "settings = 'none'", "Toy_1: settings: are unknown"),
        (
            'source = "a test", vcpus',
            'source = " ", vcpus',
            "Toy_1: facts 1: source: is missing or not a string",
        ),
        ('source = "a test", vcpus', "vcpus", "Toy_1: facts 1: source: is missing or not a string"),
        ("facts", "vcpus = 2\nfacts", "Toy_1: vcpus: has no source"),
        ("facts", "colour = 'red'\nfacts", "Toy_1: colour: is unknown"),
        ("facts", "instead = 'Toy_2'\nfacts", "Toy_1: instead: is not a known size"),
        (", rdma = true, sriov = true, hcas = 1", "", "Toy_1: rdma: is missing"),
        ("rdma = true", "rdma = false", "Toy_1: sriov: contradicts rdma = false"),
        (", hcas = 1", "", "Toy_1: hcas: is missing"),
        (
            "vcpus = 2",
            "allreduce_gbs = 9, allreduce_warn_gbs = 8",
            "Toy_1: allreduce_gbs: contradicts its limits",
        ),
        ('"Toy_1"', "1", "size 1: name: is missing or not a string"),
        ('env = { A = "1" }', "env = { A = 1 }", "settings.default.env.A: is not a string"),
        ('env = { A = "1" }', 'extends = "gpu"', "settings.default.extends: is unknown"),
        ("[settings.default]", "[setting.default]", "setting: is unknown"),
        ("[[size]]", "[size]", "size: is not a list of tables"),
        ("[[size]]", "[[size]", "toy.toml: is not TOML"),
    ],
)
def test_a_mistake_is_named_by_size_and_key(old: str, new: str, problem: str) -> None:
    assert any(problem in found for found in problems(changed(old, new)))


def test_all_mistakes_are_reported_at_once() -> None:
    bad = changed("vcpus = 2", "vcpus = 2.5, hcas = 'one'").replace(", hcas = 1", "")
    assert problems(bad) == ["toy.toml: Toy_1: vcpus: is not int", "toy.toml: Toy_1: hcas: is not int"]


def test_a_size_has_one_row() -> None:
    known = read(GOOD, "toy.toml", NOTHING)
    row = GOOD[GOOD.index("[[size]]") :]
    assert problems(row.replace("Toy_1", "TOY_1"), known) == ["toy.toml: TOY_1: has another row"]
    assert problems(GOOD + row) == ["toy.toml: Toy_1: has another row"]


def test_a_size_from_outside_counts_like_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find("Standard_TOY6r_v1") is None
    monkeypatch.setenv(MORE, str(TOY))
    size = lookup("standard_toy6R_V1")
    assert (size.name, size.slots, size.hcas) == ("Standard_TOY6r_v1", 2, 2)
    assert catalogue()[-1] is size
    assert fabric_settings(size.name).env == {**fabric_settings("Standard_NC24r").env} | {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "OMPI_MCA_coll_hcoll_enable": "0",
        "NCCL_MIN_NCHANNELS": "2",
    }


def test_an_exact_name_comes_before_a_family(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    row = '[[size]]\nname = "Standard_NC4as_T4_v3"\ninstead = "Standard_ND40rs_v2"\n'
    row += 'facts = [{ source = "a test", gpu = "T4", gpus = 1, rdma = false }]\n'
    (tmp_path / "sizes.toml").write_text(row)
    assert lookup("Standard_NC4as_T4_v3").is_family
    monkeypatch.setenv(MORE, str(tmp_path / "sizes.toml"))
    assert lookup("Standard_NC4as_T4_v3").slots == 1
    assert lookup("Standard_NC8as_T4_v3").is_family


def test_a_file_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(MORE, str(tmp_path / "none.toml"))
    with pytest.raises(InputError, match=r"RANKLIFT_SIZES = '.*none.toml': cannot be read") as refused:
        lookup("Standard_ND40rs_v2")
    assert refused.value.key == MORE
