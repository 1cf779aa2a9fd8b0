"""The fabfile's folder is last on the module path: no file of a repository stands in for a module."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from tests.playbooks.typed import ROOT, fab, write_project

HOSTILE = "import pathlib\npathlib.Path(__file__).with_name('owned').touch()\n"
OWN = """\
from invoke import task
from playbooks import ns

@task
def mine(context):
    import helper
    print(helper.WORD)

ns.add_task(mine)
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_project(tmp_path, "dev", fabfile=True)
    return tmp_path


@pytest.mark.parametrize("module", ["yaml", "uuid", "rich", "simplejson", "infra"])
@pytest.mark.parametrize("words", [("status",), ("--list",), ("launch", "job.yml", "--dry-run")])
def test_a_module_of_the_repository_is_not_run(repository: Path, module: str, words: tuple[str, ...]) -> None:
    (repository / f"{module}.py").write_text(HOSTILE)
    (repository / "job.yml").write_text("command: hostname\n")
    (repository / "inner").mkdir()
    fab(repository, *words)
    fab(repository / "inner", *words)
    assert not (repository / "owned").exists()


def test_a_task_of_the_fabfiles_own_imports_what_is_beside_it(repository: Path) -> None:
    (repository / "fabfile.py").write_text(OWN)
    (repository / "helper.py").write_text("WORD = 'helped'\n")
    (repository / "yaml.py").write_text(HOSTILE)
    assert fab(repository, "mine").stdout == "helped\n"
    fab(repository, "status")
    assert not (repository / "owned").exists()


def test_settings_that_are_code_are_refused_and_not_run(repository: Path) -> None:
    (repository / "fabric.py").write_text(HOSTILE)
    done = fab(repository, "status")
    assert done.returncode == 2
    assert f"file = '{repository}/fabric.py': is code that Fabric would run as its settings" in done.stderr
    assert not (repository / "owned").exists()


@pytest.mark.parametrize("suffix", ["yaml", "yml", "json"])
def test_settings_that_no_task_of_the_fabfiles_own_reads_choose_no_project(
    repository: Path, suffix: str
) -> None:
    (evil := repository / "evil").mkdir()
    write_project(evil, "dev", fabfile=False)
    (repository / f"fabric.{suffix}").write_text('{"ranklift": {"project": "evil"}}')
    done = fab(repository, "ssh", "--node", "0", "--stack", "dev")
    assert done.returncode == 2
    assert f"file = '{repository}/fabric.{suffix}': are settings of Fabric's" in done.stderr
    (repository / "fabfile.py").write_text(OWN)
    (repository / f"fabric.{suffix}").write_text('{"mine": {"colour": "blue"}}')
    (repository / "helper.py").write_text("WORD = 'helped'\n")
    assert fab(repository, "mine").stdout == "helped\n"


def test_settings_without_end_hold_up_no_command(repository: Path) -> None:
    lines = ["a0: &a0 {k: v}"]
    lines += [
        f"a{n}: &a{n} {{" + ", ".join(f"k{k}: *a{n - 1}" for k in range(10)) + "}" for n in range(1, 12)
    ]
    (repository / "fabric.yaml").write_text("\n".join(lines))
    assert fab(repository, "jobs").returncode == 2


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that everybody may write in, as /scratch, with one of the user's own in it."""
    folder = tmp_path / "scratch"
    (folder / "mine").mkdir(parents=True)
    folder.chmod(0o1777)
    return folder


@pytest.mark.parametrize("place", ["fabfile.py", "fabfile/__init__.py"])
def test_a_fabfile_that_another_user_may_have_put_above_is_not_run(shared: Path, place: str) -> None:
    fabfile = shared / place
    fabfile.parent.mkdir(exist_ok=True)
    fabfile.write_text(f"{HOSTILE}from playbooks import ns\n")
    for words in (("jobs",), ("--list",), ("launch", "job.yml", "--dry-run")):
        ran = fab(shared / "mine", *words)
        assert ran.returncode == 2
        assert f"file = '{fabfile}': it, or its folder, belongs to another user" in ran.stderr
        assert f"if you trust it, give fab --search-root {shared}" in ran.stderr
    assert not (fabfile.parent / "owned").exists()
    write_project(shared / "mine", "dev")
    assert "belongs to another user" not in fab(shared / "mine", "--search-root", str(shared), "jobs").stderr
    assert (fabfile.parent / "owned").exists()


def test_a_project_that_another_user_may_have_put_above_is_not_taken(shared: Path) -> None:
    write_project(shared, "dev")
    (shared / "mine/fabfile.py").write_text("from playbooks import ns\n")
    ran = fab(shared / "mine", "ssh", "--node", "0", "--stack", "dev")
    assert ran.returncode == 2
    assert f"project = '{shared}/Pulumi.yaml': it, or its folder, belongs to another user" in ran.stderr
    (shared / "mine/fabfile.py").write_text(
        f"from playbooks import ns\nns.configure({{'ranklift': {{'project': {str(shared)!r}}}}})\n"
    )
    ran = fab(shared / "mine", "jobs")
    assert (
        f"ranklift.project = '{shared}/Pulumi.yaml': it, or its folder, belongs to another user" in ran.stderr
    )
    (shared / "mine/fabfile.py").write_text("from playbooks import ns\n")
    named = fab(shared / "mine", "jobs", env={"RANKLIFT_PROJECT": str(shared)})
    assert "belongs to another user" not in named.stderr


def compiled(source: Path, text: str) -> None:
    """Put other code into the cache of a source, to be run without a look at the source."""
    other = source.with_name("other.txt")
    other.write_text(text)
    cache = source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
    py_compile.compile(
        str(other), str(cache), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )


EDITABLE = """
import sys
from importlib.machinery import PathFinder

class Editable:
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [{root!r}]) if path is None else None

sys.path[:] = [entry for entry in sys.path if entry not in ("", {root!r})]
sys.meta_path.append(Editable)
sys.argv = ["fab", *{words!r}]
from playbooks.start import program
program.run()
"""
"""``fab`` of an editable installation: setuptools puts its finder behind the module path."""


@pytest.mark.parametrize("words", [("status",), ("--list",), ("--complete", "--", "fab j")])
def test_no_module_of_an_editable_installation_is_replaced(repository: Path, words: tuple[str, ...]) -> None:
    for package in ("rehearsal", "infra", "images", "catalogue", "launch/client"):
        (repository / package).mkdir(parents=True)
        (repository / package / "__init__.py").write_text(
            f"import pathlib\npathlib.Path({str(repository)!r}, 'owned').touch()\n"
        )
    line = EDITABLE.format(root=str(ROOT), words=words)
    subprocess.run(
        [sys.executable, "-c", line],
        cwd=repository,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        check=False,
        capture_output=True,
        timeout=120,
    )
    assert not (repository / "owned").exists()


def test_a_package_beside_the_fabfile_runs_from_its_sources(repository: Path) -> None:
    (repository / "fabfile.py").write_text(
        OWN.replace("import helper", "from helpers.deep import tools as helper")
    )
    (repository / "helpers/deep").mkdir(parents=True)
    for package in ("helpers", "helpers/deep"):
        (repository / package / "__init__.py").touch()
    tools = repository / "helpers/deep/tools.py"
    tools.write_text("WORD = 'helped'\n")
    owned = f"{str(repository / 'owned')!r}"
    for path in (tools, tools.with_name("__init__.py")):
        compiled(path, HOSTILE.replace("'owned'", owned) + path.read_text())
    assert fab(repository, "mine").stdout == "helped\n"
    assert not (repository / "owned").exists()


@pytest.mark.parametrize("name", ["fabfile.py", "fabfile/__init__.py", "helper.py"])
def test_what_runs_is_the_source_and_no_cache_of_the_repositorys(repository: Path, name: str) -> None:
    path = repository / name
    path.parent.mkdir(exist_ok=True)
    if path.name == "__init__.py":
        (repository / "fabfile.py").unlink()
        path.write_text(OWN)
        (path.parent / "helper.py").write_text("WORD = 'helped'\n")
    else:
        (repository / "fabfile.py").write_text(OWN)
        (repository / "helper.py").write_text("WORD = 'helped'\n")
    compiled(path, HOSTILE.replace("'owned'", f"{str(repository / 'owned')!r}") + path.read_text())
    assert fab(repository, "mine").stdout == "helped\n"
    fab(repository, "--complete", "--", "fab j")
    assert not [*repository.rglob("owned")]


def test_a_repository_below_the_fabfiles_folder_does_not_become_the_project(repository: Path) -> None:
    (repository / "clone").mkdir()
    write_project(repository / "clone", "dev")
    ran = fab(repository / "clone", "jobs")
    assert "stack = 'dev': has no saved inventory" in ran.stderr
    (repository / "clone/.ranklift/dev").mkdir(parents=True)
    (repository / "clone/.ranklift/dev/inventory.json").write_text("{}")
    assert fab(repository / "clone", "jobs").stderr == ran.stderr
