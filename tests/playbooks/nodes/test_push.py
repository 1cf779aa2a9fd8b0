"""Which folder is pushed where none is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from playbooks.nodes.push import source_folder


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a folder ``src``, on a machine whose git is missing, or refuses another's files."""
    (tmp_path / "code/.git").mkdir(parents=True)
    (tmp_path / "code/.git/HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "code/src").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "code"


def test_it_is_the_repository_around_the_current_folder(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (repository / "src", repository, repository / ".git"):
        monkeypatch.chdir(folder)
        assert source_folder(None) == repository


def test_a_work_tree_has_a_file_in_that_place(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = repository / "other"
    other.mkdir()
    (other / ".git").write_text(f"gitdir: {repository}/.git/worktrees/other\n")
    monkeypatch.chdir(other)
    assert source_folder(None) == other


def test_one_that_may_not_be_looked_into_is_one_all_the_same(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = Path.is_file

    def is_file(path: Path) -> bool:
        if path.parent == repository / ".git":
            raise PermissionError(13, "Permission denied", str(path))
        return looked(path)

    monkeypatch.setattr(Path, "is_file", is_file)  # root may look into everything
    monkeypatch.chdir(repository / "src")
    assert source_folder(None) == repository


def test_without_a_repository_it_is_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()  # nothing of git's is in it
    monkeypatch.chdir(tmp_path)
    assert source_folder(None) == tmp_path


def test_what_is_named_is_taken() -> None:
    assert source_folder("~/code") == Path.home() / "code"
