"""The ignore rules mean what git takes them to mean; git itself is asked."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from launch.code import ignore
from launch.code.snapshot import plan_snapshot
from launch.errors import InputError

NAMES = ["a", "b", "ab", "a b", ".x", "a\nb", "ä", "a.py", "[a]", "#a", "!a", "a\\b"]
WORDS = ["a", "b", "*", "?", "a*", "**", "*.py", "[ab]", "[!a]", "[]a-]", "[^-a]", "[[:alpha:]]", "[a", "a**"]
WORDS += [".*", "ä", "a b", r"\#a", r"\!a", r"\[a]", "[a-c]*", "??"]

paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
rules = st.builds(
    lambda negated, rooted, words, folder: f"{negated}{rooted}{'/'.join(words)}{folder}",
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "", "/"]),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=3),
    st.sampled_from(["", "", "/"]),
)
texts = st.lists(st.one_of(rules, st.sampled_from(["", "# a", "a  "])), max_size=5).map("\n".join)


def lay_out(root: Path, files: list[str], ignores: dict[str, str], name: str) -> None:
    for file in files:
        path = root / file
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        except OSError:  # a name drawn both as a file and as a folder: the first one stands
            continue
    for folder, text in ignores.items():
        if (root / folder).is_dir():
            (root / folder / name).write_text(text, encoding="utf-8", newline="")


def git_says(root: Path) -> set[str]:
    quiet = {"HOME": str(root), "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    environment = {**os.environ, **quiet}
    subprocess.run(["git", "init", "-q"], cwd=root, env=environment, check=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"],
        cwd=root,
        env=environment,
        check=True,
        capture_output=True,
    )
    return {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}


def we_say(root: Path) -> set[str]:
    return {entry.path for entry in plan_snapshot(root).entries}


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    files=st.lists(paths, min_size=1, max_size=8),
    ignores=st.dictionaries(st.sampled_from(["", "a", "b", "a/b"]), texts, min_size=1, max_size=3),
)
@example(files=["a/b", "a/a"], ignores={"": "*\n!a/\n!.gitignore"})
@example(files=["a/b", "a/a"], ignores={"": "a/**\n!a/b"})
@example(files=["a/b/a", "a/b/b"], ignores={"": "/a/*\n!/a/b", "a/b": "a"})
@example(files=["a\nb/b", "b\n"], ignores={"": "b"})
@example(files=["ab/a", "a"], ignores={"": "**/a"})
@example(files=["a"], ignores={"": "\ufeffa"})
@example(files=["a"], ignores={"": "a**/*"})
@example(files=["a", "b"], ignores={"": "a\r\n!b\r\n"})
@example(files=["ab/b", "b"], ignores={"": "a**/b"})
def test_what_git_would_list_is_what_is_pushed(files: list[str], ignores: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        lay_out(root, ["kept/always", *files], ignores, ".gitignore")
        (root / "kept" / ".gitignore").write_text("!always\n")
        try:
            ours = we_say(root)
        except InputError:
            ours = set()
        assert ours == git_says(root)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(files=st.lists(paths, min_size=1, max_size=6), text=texts)
def test_both_ignore_files_mean_the_same(files: list[str], text: str) -> None:
    shown = []
    for name in (".gitignore", ".ranklift-ignore"):
        with tempfile.TemporaryDirectory() as folder:
            lay_out(Path(folder), files, {"": text}, name)
            try:
                shown.append(we_say(Path(folder)) - {name})
            except InputError:
                shown.append(set())
    assert shown[0] == shown[1]


def test_ranklift_ignore_has_the_last_word_in_its_folder(tmp_path: Path) -> None:
    lay_out(tmp_path, ["big.bin", "small.bin", "sub/other.bin"], {"": "*.bin"}, ".gitignore")
    lay_out(tmp_path, [], {"": "!small.bin\n.*ignore"}, ".ranklift-ignore")
    assert we_say(tmp_path) == {"small.bin"}


def test_git_folders_and_files_are_never_pushed(tmp_path: Path) -> None:
    lay_out(
        tmp_path, ["code.py", ".git/config", "module/.git", "module/x.py"], {"": "!.git"}, ".ranklift-ignore"
    )
    assert we_say(tmp_path) == {".ranklift-ignore", "code.py", "module/x.py"}


def test_a_folder_rule_does_not_match_a_link_to_a_folder(tmp_path: Path) -> None:
    lay_out(tmp_path, ["real/x"], {"": "link/\n"}, ".gitignore")
    (tmp_path / "link").symlink_to("real")
    assert we_say(tmp_path) == git_says(tmp_path) == {".gitignore", "link", "real/x"}


def test_a_rule_that_no_path_can_match_does_nothing(tmp_path: Path) -> None:
    lay_out(tmp_path, ["x", "[a", "b\\"], {"": "!\n/\n[a\nb\\\n[z-a]\n[]\n"}, ".gitignore")
    assert we_say(tmp_path) == git_says(tmp_path) == {"x", "[a", "b\\", ".gitignore"}


def test_azure_mls_ignore_file_takes_the_place_of_gits_beside_it(tmp_path: Path) -> None:
    lay_out(tmp_path, ["a.log", "b.bin", "sub/a.log", "sub/b.bin", "c.tmp"], {}, "")
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / ".amlignore").write_text("*.bin\n")
    (tmp_path / ".ranklift-ignore").write_text("*.tmp\n!/b.bin\n")
    (tmp_path / "sub" / ".gitignore").write_text("*.log\n")
    assert {name for name in we_say(tmp_path) if "ignore" not in name} == {"a.log", "b.bin"}


@pytest.mark.parametrize("name", [".gitignore", ".amlignore", ".ranklift-ignore"])
@pytest.mark.parametrize("folder", ["", "inner"])
def test_an_ignore_file_that_is_too_long_is_refused_by_name(tmp_path: Path, name: str, folder: str) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / name).write_bytes(b"x\n" * (128 << 10) + b"y\n")
    with pytest.raises(
        InputError, match=rf"{re.escape(str(tmp_path / folder / name))}.* larger than 256 KiB"
    ):
        plan_snapshot(tmp_path)


def test_rules_of_all_ignore_files_have_a_limit_and_the_file_that_exceeds_it_is_named(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    source = tmp_path / "src"
    places = (tmp_path / ".gitignore", source / ".ranklift-ignore", source / "a/.gitignore")
    for place in (*places, source / "a/b/.gitignore"):
        place.parent.mkdir(exist_ok=True)
        place.write_text("".join(f"{place.parent.name[0]}{n}\n" for n in range(12_500)))
    plan_snapshot(source)
    (source / "c").mkdir()
    (source / "c/.gitignore").write_text("x\n")
    with pytest.raises(InputError, match="brings the rules of all ignore files above 50000") as caught:
        plan_snapshot(source)
    assert caught.value.value in {f"{source}/c/.gitignore", f"{source}/a/b/.gitignore"}
    assert "name folders in it in place of files" in str(caught.value)


def test_paths_and_patterns_that_would_take_hours_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each comparison is bounded by path and pattern; what counts is their number."""
    folder = tmp_path / "/".join("b" * 100)
    folder.mkdir(parents=True)
    for number in range(100):
        (folder / f"{number}.py").touch()
    (tmp_path / ".gitignore").write_text("".join(f"**/b*/b*/a{number}\n" for number in range(100)))
    plan_snapshot(tmp_path)
    monkeypatch.setattr(ignore, "_MOST_COMPARED", 100 * 100 * 100)
    with pytest.raises(InputError, match="compared with ignore files above 1000000 characters"):
        plan_snapshot(tmp_path)


ABOVE = {
    "by name": {"": "*.pt\n.env\n"},
    "by path": {"": "/work/src/secrets/\nsrc/*.pt\nwork/**/.env\n"},
    "deeper wins": {"": "*.pt\n.env", "work": "!*.pt\n", "work/src": "keep.pt\n"},
    "two levels": {"": "*.pt", "work": "src/.env\n/secrets\n"},
}


@pytest.mark.parametrize("ignores", ABOVE.values(), ids=ABOVE)
def test_ignore_files_above_a_folder_of_a_repository_count_as_in_git(
    tmp_path: Path, ignores: dict[str, str]
) -> None:
    inside = ["a.py", "a.pt", "keep.pt", ".env", "secrets/key", "deep/.env", "deep/a.pt", "deep/a.py"]
    lay_out(tmp_path, [f"work/src/{name}" for name in inside], ignores, ".gitignore")
    listed = {name.removeprefix("work/src/") for name in git_says(tmp_path) if name.startswith("work/src/")}
    assert we_say(tmp_path / "work/src") == listed
    (tmp_path / "link").symlink_to("work/src")
    assert we_say(tmp_path / "link") == listed


def test_no_file_outside_of_the_folders_own_repository_counts(tmp_path: Path) -> None:
    lay_out(tmp_path, ["lone/a.pt", "repository/.git/HEAD", "repository/a.pt"], {"": "*.pt\n"}, ".gitignore")
    assert we_say(tmp_path / "lone") == we_say(tmp_path / "repository") == {"a.pt"}


def test_a_folder_that_is_ignored_itself_is_pushed_where_it_is_named(tmp_path: Path) -> None:
    lay_out(tmp_path, [".git/HEAD", "build/a.py", "build/a.pt"], {"": "/build/\n*.pt\n"}, ".gitignore")
    assert we_say(tmp_path / "build") == {"a.py"}


def test_ranklift_ignore_above_counts_and_azure_mls_does_not(tmp_path: Path) -> None:
    lay_out(tmp_path, [".git/HEAD", "src/a.pt", "src/b.pt"], {"": "*.pt\n"}, ".gitignore")
    (tmp_path / ".ranklift-ignore").write_text("!b.pt\n")
    (tmp_path / ".amlignore").write_text("")
    assert we_say(tmp_path / "src") == {"b.pt"}


def test_an_ignore_file_above_that_leads_out_of_the_repository_is_refused(tmp_path: Path) -> None:
    lay_out(tmp_path, ["other", "top/.git/HEAD", "top/src/a.py"], {}, "")
    (tmp_path / "top/.gitignore").symlink_to(tmp_path / "other")
    with pytest.raises(InputError, match=r"links that leave it.*top/\.gitignore -> "):
        plan_snapshot(tmp_path / "top/src")
