"""What activating a conda environment sets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch.remote.environment.build import Failed
from launch.remote.environment.conda.conda_activation import activated, write_activation


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    for folder in ("conda-meta", "etc/conda/activate.d", "etc/conda/env_vars.d"):
        (tmp_path / "an env" / folder).mkdir(parents=True)
    return tmp_path / "an env"


def found(prefix: Path) -> tuple[dict[str, str], list[str]]:
    lines: list[str] = []
    write_activation(str(prefix), [], lambda text, *_: lines.append(text))
    return activated(str(prefix)), lines


def test_without_scripts_it_is_the_prefix_and_no_package_of_the_home_folder(prefix: Path) -> None:
    assert found(prefix) == ({"CONDA_PREFIX": str(prefix), "PYTHONNOUSERSITE": "1"}, [])


def test_scripts_are_read_in_order_and_see_packages_variables(prefix: Path) -> None:
    (prefix / "etc/conda/env_vars.d/a.json").write_text(json.dumps({"BASE": "b", "LINES": "1\n2"}))
    (prefix / "etc/conda/activate.d/2.sh").write_text('export CC="$CC-2"; unset LINES\n')
    (prefix / "etc/conda/activate.d/1.sh").write_text(
        'export CC="$CONDA_PREFIX/$BASE" TEXT="1\n=2" CONDA_BACKUP_CC=x\nlocal=1; cd /\n'
    )
    (prefix / "etc/conda/activate.d/3.csh").write_text("exit 1\n")
    assert found(prefix) == (
        {
            **{"BASE": "b", "CC": f"{prefix}/b-2", "CONDA_PREFIX": str(prefix), "PYTHONNOUSERSITE": "1"},
            "TEXT": "1\n=2",
        },
        [],
    )


def test_another_path_is_reported_as_ranks_do_not_get_it(prefix: Path) -> None:
    (prefix / "etc/conda/activate.d/go.sh").write_text('export PATH="$PATH:/go"\n')
    variables, lines = found(prefix)
    assert "PATH" not in variables
    assert lines == ["note: go.sh of the packages also set PATH, which ranks do not get"]


def test_a_script_that_ends_the_shell_is_quoted(prefix: Path) -> None:
    (prefix / "etc/conda/activate.d/a.sh").write_text("echo license is missing; exit 3\n")
    with pytest.raises(Failed, match="failed with exit status 3") as caught:
        found(prefix)
    assert caught.value.lines == ["license is missing"]


def test_a_script_that_ends_the_shell_as_if_all_were_well_is_named(prefix: Path) -> None:
    (prefix / "etc/conda/activate.d/a.sh").write_text('[ -n "$LICENSE" ] || exit 0\n')
    with pytest.raises(Failed, match=r"one of a\.sh in etc/conda/activate\.d ends the shell"):
        found(prefix)


def test_what_conda_did_not_make_sets_nothing(tmp_path: Path) -> None:
    assert activated(str(tmp_path)) == {}
