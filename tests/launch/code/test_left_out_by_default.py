"""What a push leaves out though no ignore file names it: collected results, environments, tools' folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.code.left_out import left_out_notice
from launch.code.snapshot import plan_data, plan_snapshot
from launch.errors import InputError, NodeUnreachable
from tests.launch.collected import HEAD, JOB, Cluster

BY_NAME = [
    "__pycache__",
    "node_modules",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".tox",
    ".nox",
    ".eggs",
]
BY_NAME += [".ipynb_checkpoints"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "code"
    root.mkdir()
    (root / "train.py").write_text("print('hello')\n")
    return root


def put(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("12345")


def pushed(root: Path) -> set[str]:
    return {entry.path for entry in plan_snapshot(root).entries} - {".ranklift-ignore", ".gitignore"}


def groups(root: Path) -> list[str]:
    return [folder.group for folder in plan_snapshot(root).left_out]


@pytest.mark.parametrize("name", BY_NAME)
def test_what_a_tool_makes_again_is_left_out_at_every_depth(tree: Path, name: str) -> None:
    put(tree, f"{name}/a", f"src/{name}/deep/b", "src/c.py")
    assert pushed(tree) == {"train.py", "src/c.py"}
    assert groups(tree) == [name, name]


def test_a_virtual_environment_is_known_by_its_content_and_not_by_its_name(tree: Path) -> None:
    put(tree, "envs/torch/pyvenv.cfg", "envs/torch/bin/python", "venv/notes.txt", ".venv/plan.md")
    assert pushed(tree) == {"train.py", "venv/notes.txt", ".venv/plan.md"}
    assert groups(tree) == ["envs/torch"]


def test_reports_and_the_figures_of_a_scaling_study_are_left_out(tree: Path) -> None:
    report = "report-t-20260301-090507-0f3a.html"
    put(tree, report, "docs/report-of-2026.html")
    put(tree, *(f"scaling/scaling.{kind}" for kind in ("json", "csv", "html")), "scaling.json")
    assert pushed(tree) == {"train.py", "docs/report-of-2026.html", "scaling.json"}
    notice = left_out_notice(tree, plan_snapshot(tree).left_out)
    assert notice is not None
    assert notice.startswith(f"left out: {report} (5 B), scaling (15 B); ")
    (tree / ".ranklift-ignore").write_text(f"!{report}\n!scaling\n")
    assert len(pushed(tree)) == 7


def test_metadata_of_an_installation_is_pushed(tree: Path) -> None:
    put(tree, "tool.egg-info/entry_points.txt")
    assert "tool.egg-info/entry_points.txt" in pushed(tree)


class TestResults:
    """Folders that ``fab collect`` wrote into the code."""

    @pytest.fixture
    def cluster(self, tmp_path: Path, tree: Path) -> Cluster:
        made = Cluster(tmp_path / "cluster").make()
        made.into = tree / "runs" / "mine"
        return made

    def test_they_are_left_out_wherever_they_are(self, cluster: Cluster, tree: Path) -> None:
        cluster.collect()
        put(tree, "runs/mine/notes.md", "results/figure.py")
        assert pushed(tree) == {"train.py", "runs/mine/notes.md", "results/figure.py"}
        assert [(one.path, one.group) for one in plan_snapshot(tree).left_out] == [
            (f"runs/mine/{JOB}", "runs/mine")
        ]

    def test_a_renamed_one_is_known(self, cluster: Cluster, tree: Path) -> None:
        cluster.collect()
        (tree / "runs/mine" / JOB).rename(tree / "best")
        assert groups(tree) == ["best"]
        assert pushed(tree) == {"train.py"}

    def test_so_is_one_without_its_heads_records(self, cluster: Cluster, tree: Path) -> None:
        cluster.head.gone = True
        cluster.collect(others=True)
        assert pushed(tree) == {"train.py"}

    def test_so_is_one_that_was_interrupted(self, cluster: Cluster, tree: Path) -> None:
        cluster.write(HEAD, "outputs/model.bin", bytes(1_000_000))
        cluster.head.breaks_after = 200_000
        with pytest.raises(NodeUnreachable):
            cluster.collect()
        assert (tree / "runs/mine" / JOB / ".part").is_dir()
        assert pushed(tree) == {"train.py"}

    @pytest.mark.parametrize("rule", ["!runs/mine", "!mine/", f"!{JOB}", f"!/runs/mine/{JOB}/"])
    def test_a_rule_brings_them_back(self, cluster: Cluster, tree: Path, rule: str) -> None:
        cluster.collect()
        put(tree, ".ranklift-ignore")
        (tree / ".ranklift-ignore").write_text(f"{rule}\n")
        assert f"runs/mine/{JOB}/logs/rank-0.log" in pushed(tree)

    def test_data_with_sums_of_its_own_is_pushed(self, tree: Path) -> None:
        put(tree, "data/SHA256SUMS", "data/logs/a", "data/outputs/b")
        assert pushed(tree) == {"train.py", "data/SHA256SUMS", "data/logs/a", "data/outputs/b"}

    def test_those_of_a_job_can_be_the_source(self, cluster: Cluster, tree: Path) -> None:
        cluster.collect()
        assert "logs/rank-0.log" in pushed(tree / "runs/mine" / JOB)


@pytest.mark.parametrize("file", [".gitignore", ".ranklift-ignore"])
@pytest.mark.parametrize("name", ["__pycache__", "env"])
def test_a_rule_that_names_a_folder_brings_it_back(tree: Path, file: str, name: str) -> None:
    put(tree, "__pycache__/a.pyc", "env/pyvenv.cfg")
    (tree / file).write_text(f"!{name}\n")
    assert len(pushed(tree)) == 2
    assert any(path.startswith(name) for path in pushed(tree))


def test_a_rule_for_folders_in_general_brings_nothing_back(tree: Path) -> None:
    """As in a list of what may be pushed: ``*``, ``!*/``, ``!*.py``."""
    put(tree, "env/pyvenv.cfg", "env/lib/site.py", "src/a.py", "src/a.bin")
    (tree / ".gitignore").write_text("*\n!*/\n!*.py\n")
    assert pushed(tree) == {"train.py", "src/a.py"}


def test_a_later_rule_leaves_it_out_again(tree: Path) -> None:
    put(tree, "env/pyvenv.cfg")
    (tree / ".gitignore").write_text("!env\n")
    (tree / ".ranklift-ignore").write_text("env\n")
    assert pushed(tree) == {"train.py"}


def test_what_an_ignore_file_names_is_not_reported(tree: Path) -> None:
    put(tree, "env/pyvenv.cfg", "src/__pycache__/a.pyc")
    (tree / ".gitignore").write_text("env/\n__pycache__/\n")
    assert groups(tree) == []


def test_data_is_whole(tree: Path) -> None:
    put(tree, "env/pyvenv.cfg", "__pycache__/a.pyc")
    assert {entry.path for entry in plan_data(tree).entries} == {
        "train.py",
        "env/pyvenv.cfg",
        "__pycache__/a.pyc",
    }


def test_a_source_in_which_all_is_left_out_is_refused_by_that_reason(tree: Path) -> None:
    (tree / "train.py").unlink()
    put(tree, "env/pyvenv.cfg")
    with pytest.raises(InputError, match="has no files to push but env, left out by default"):
        plan_snapshot(tree)


def test_one_line_names_the_folders_their_sizes_and_how_to_push_one(tree: Path) -> None:
    put(tree, "env/pyvenv.cfg", "env/lib/a", "__pycache__/a", "src/__pycache__/b")
    (tree / "env" / "python").symlink_to("/usr/bin/python3")
    notice = left_out_notice(tree, plan_snapshot(tree).left_out)
    assert notice == (
        "left out: __pycache__ (2 folders, 10 B), env (26 B); "
        "a line like !__pycache__ in .ranklift-ignore has it pushed"
    )
    assert left_out_notice(tree, []) is None
