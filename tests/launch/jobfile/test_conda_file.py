"""Conda files: which need conda and which do not, and mistakes with their line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch.access import Access
from launch.environment.environment_spec import PythonEnvironment
from launch.errors import InputError, InputErrors
from launch.jobfile import read_conda


def made(tmp_path: Path, text: str, **environ: str) -> PythonEnvironment:
    path = tmp_path / "conda.yml"
    path.write_text(text)
    return read_conda(path, Access(variables=environ))


def test_python_and_pip_alone_need_no_conda(tmp_path: Path) -> None:
    text = (
        "name: train\nchannels: [conda-forge]\ndependencies:\n- python=3.10\n- pip=24.0\n- pip:\n"
        "  - torch==2.8.0\n  - --extra-index-url https://download.pytorch.org/whl/cu126\n"
    )
    assert made(tmp_path, text) == PythonEnvironment(
        "pip==24.0.*\ntorch==2.8.0\n--extra-index-url https://download.pytorch.org/whl/cu126",
        python="3.10",
        title="conda.yml",
    )


def test_other_packages_need_conda_and_pips_stay_with_pip(tmp_path: Path) -> None:
    text = "dependencies:\n- conda-forge::cudatoolkit =11.8\n- python\n- numpy=1.26=py310_0\n- pip: [torch]\n"
    found = made(tmp_path, text)
    assert json.loads(found.conda) == {
        "channels": [],
        "dependencies": ["conda-forge::cudatoolkit =11.8", "numpy=1.26=py310_0"],
    }
    assert (found.requirements, found.python) == ("torch", "")


@pytest.mark.parametrize("written", ["file://{0}", "{0}", "./local"])
def test_a_folder_is_sent_along_whatever_its_path(tmp_path: Path, written: str) -> None:
    (tmp_path / "local/noarch").mkdir(parents=True)
    (tmp_path / "local/noarch/repodata.json").touch()
    folder = written.format(tmp_path / "local")
    found = made(tmp_path, f"channels: [conda-forge, '{folder}', nodefaults]\ndependencies: [a]\n")
    assert json.loads(found.conda)["channels"] == ["conda-forge", "folder:0", "nodefaults"]
    assert found.channels == (tmp_path / "local",)


def test_beside_packages_of_conda_pip_and_a_build_of_python_are_condas_too(tmp_path: Path) -> None:
    text = "dependencies: [python=3.10.*=*_cpython, pip=24.0, numpy, pip: [torch]]\n"
    found = made(tmp_path, text)
    assert json.loads(found.conda)["dependencies"] == ["python=3.10.*=*_cpython", "numpy", "pip=24.0"]
    assert (found.python, found.requirements) == ("", "torch")
    found = made(tmp_path, "dependencies: ['conda-forge::python=3.10', numpy]\n")
    assert (found.python, json.loads(found.conda)["dependencies"]) == (
        "",
        ["numpy", "conda-forge::python=3.10"],
    )


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        *(("python", ""), ("python=3.10", "3.10"), ("python==3.10.4", "3.10.4"), ("python 3.10.*", "3.10")),
        *(
            ("python=3.10.*", "3.10"),
            ("python >=3.9, <3.12", ">=3.9,<3.12"),
            ("conda-forge::python=3.9", "3.9"),
        ),
    ],
)
def test_the_version_of_python_is_one_or_a_range(tmp_path: Path, spec: str, version: str) -> None:
    assert made(tmp_path, f"dependencies: ['{spec}']\n").python == version


@pytest.mark.parametrize(
    ("spec", "requirement"),
    [("pip", "pip"), ("pip=24.0", "pip==24.0.*"), ("pip==24.0", "pip==24.0"), ("pip>=23", "pip>=23")],
)
def test_pip_itself_is_installed_as_the_file_has_it(tmp_path: Path, spec: str, requirement: str) -> None:
    assert made(tmp_path, f"dependencies: ['{spec}']\n").requirements == requirement


def test_requirements_in_it_are_inlined_from_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("torch\n")
    assert made(tmp_path, "dependencies:\n- pip: ['-r r.txt']\n").requirements == "torch"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: a\n", "line 1: has no dependencies; list packages"),
        ("dependencies: numpy\n", "line 1: dependencies = 'numpy': is not a list"),
        (
            "dependencies:\n- python=3.10\n- python=3.11\n",
            "line 3: dependencies[1] = 'python=3.11': gives python",
        ),
        (
            "channels: ['!']\ndependencies: [a]\n",
            "line 1: channels[0] = '!': is not a channel; write a name such as conda-forge",
        ),
        (
            "channels: [nodefaults]\ndependencies: [a]\n",
            "line 1: channels: has no channel but nodefaults; add one",
        ),
        (
            "channels: ['file:///nowhere']\ndependencies: [a]\n",
            "line 1: channels[0] = 'file:///nowhere': /nowhere does not exist; give the folder above noarch",
        ),
        (
            "channels: ['https://ann:secret@a.example/b']\ndependencies: [a]\n",
            "line 1: channels[0] = 'https://***@a.example/b': has a password or token",
        ),
        (
            "dependencies: ['https://ann:secret@a.example/b::a']\n",
            "line 1: dependencies[0] = 'https://***@a.example/b::a': has a password or token",
        ),
        (
            "dependencies: ['https://a.example/t/secret/b::a']\n",
            "line 1: dependencies[0] = 'https://a.example/t/***/b::a': has a password or token",
        ),
        (
            "dependencies: ['file:///local::a']\n",
            "line 1: dependencies[0] = 'file:///local::a': names a folder as its channel; list the folder",
        ),
        ("dependencies:\n- 3.10\n", "line 2: dependencies[0] = 3.10: is not a string; put it in quotes"),
        (
            "dependencies:\n- '-p/tmp/x::numpy'\n",
            "line 2: dependencies[0] = '-p/tmp/x::numpy': is not a package",
        ),
        ("dependencies:\n- 'num py!'\n", "line 2: dependencies[0] = 'num py!': is not a package"),
        ("dependencies:\n- conda: [a]\n", "line 2: dependencies[0].conda: unknown key; known keys: pip"),
        (
            "dependencies:\n- pip:\n  - -e .\n",
            "line 3: dependencies[0].pip[0] = '-e .': points at files of this",
        ),
        (
            "variables: {A: b}\ndependencies: [a]\n",
            "line 1: variables: are not taken from a conda file",
        ),
        ("dependencys: [a]\n", "line 1: dependencys: unknown key; did you mean dependencies?"),
    ],
)
def test_a_mistake_is_refused_with_its_line_key_and_remedy(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        made(tmp_path, text)
    assert f"{tmp_path / 'conda.yml'}, {words}" in str(caught.value)
    assert "; " in str(caught.value)


def test_the_prefix_that_an_export_ends_with_is_not_used_which_a_note_says(tmp_path: Path) -> None:
    (tmp_path / "conda.yml").write_text("name: x\ndependencies: [pip: [torch]]\nprefix: /home/me/envs/x\n")
    access = Access()
    assert read_conda(tmp_path / "conda.yml", access).requirements == "torch"
    where = f"{tmp_path / 'conda.yml'}, line 3"
    assert access.notes == [f"{where}: prefix is not used: it names a folder of another machine"]


def test_all_mistakes_come_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputErrors) as caught:
        made(tmp_path, "variables: {a: b}\ndependencies:\n- '!'\n- pip: [--pre]\n")
    assert len(caught.value.errors) == 3


def test_a_missing_file_is_named_by_who_named_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^--conda = '.*none.yml': cannot be read .*; name a conda file"):
        read_conda(tmp_path / "none.yml")
