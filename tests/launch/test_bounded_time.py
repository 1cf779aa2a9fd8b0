"""Texts of a repository that once took seconds to hours to read are read at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from launch.client.events import JobState
from launch.code.ignore import Rules
from launch.code.private_keys import key_numbers, shows_key
from launch.code.snapshot import plan_data
from launch.data.data_address import read_address
from launch.data.local_files import list_files
from launch.environment.requirements import read_requirements
from launch.errors import InputError, InputErrors
from launch.jobfile import read_conda
from launch.remote.environment.dockerfile import bases
from playbooks.cli import output
from playbooks.jobs.tables import job_rows
from tests.launch.remote.sample_records import sample_state

LIMIT_S = 2.0
"""Processor time. Each takes a small part of it; before, the quickest of them took four times as long."""
COUNT = 60_000


@contextmanager
def bounded() -> Iterator[None]:
    """A block of code that takes at most :data:`LIMIT_S`."""
    begun = time.process_time()
    yield
    assert time.process_time() - begun < LIMIT_S


PATTERNS = {
    "folders at any depth": "**/a/" * 30 + "x",
    "folders at any depth, in a row": "**/" * COUNT + "x",
    "folders with stars at any depth": "**/a*/" * 30 + "x",
    "stars": "*a" * 100 + "x",
    "stars in a row": "*" * COUNT + "x",
    "stars and question marks": "*?" * 100 + "x",
    "stars and sets": "*[ab]" * 100 + "x",
    "stars below folders": "*a/" * 100 + "x",
    "open brackets": "[" * COUNT,
    "sets of open brackets": "[[:a" * COUNT,
    "many sets": "[!a]" * COUNT,
    "blanks": "x" + " " * COUNT + "x",
    "escaped blanks": "\\ " * COUNT + "x",
    "backslashes": "\\" * COUNT,
    "the same line": "*a*a*a*a*x\n" * COUNT,
}
PATHS = ("a" * 255, "a/" * 2000 + "y", ("a" * 200 + "/") * 20 + "y", "ab" * 120)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_a_pattern_of_an_ignore_file(pattern: str) -> None:
    with bounded():
        rules = Rules().within("", {".gitignore": f"{pattern}\n/{pattern}".encode()})
        for path in PATHS:
            rules.ignored(path, is_directory=False)


LINES = {
    "version after version": "torch " + "==1 " * 40 + "!",
    "version after version with commas": "torch" + " == 1 , " * 2000 + "!",
    "name": "a" * COUNT + "!",
    "name with dots": "a." * COUNT + "!",
    "open brackets": "a" + "[" * COUNT,
    "blanks": "torch" + " " * COUNT + "!",
    "tabs before a hash": "torch" + "\t" * COUNT + "#!",
    "backslashes": "torch" + "\\" * COUNT,
    "continued lines": "torch\\\n" * COUNT + "!",
    "open variables": "${A" * COUNT,
    "one open variable": "${" + "A" * COUNT,
    "hashes": "torch" + " --hash=sha256:ab" * 5000 + "!",
    "option": "--" + "a-" * COUNT + "!",
    "addresses": "://" * COUNT,
    "logins": "http://" + "a:" * COUNT,
    "wheels": ".whl" * COUNT + "!",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_line_of_a_requirements_file(tmp_path: Path, line: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"{line}\n")
    with bounded(), suppress(InputError):
        read_requirements(tmp_path / "requirements.txt")


@pytest.mark.parametrize("option", ["-r", "-c"])
def test_requirements_files_that_include_the_next_one_twice(tmp_path: Path, option: str) -> None:
    for number in range(40):
        (tmp_path / f"{number}.txt").write_text(f"{option} {number + 1}.txt\n" * 2 + f"package{number}\n")
    (tmp_path / "40.txt").write_text("torch\n")
    with bounded():
        made = read_requirements(tmp_path / "0.txt")
    lines = made.requirements if option == "-r" else made.constraints
    assert lines.splitlines().count("torch") == 1


def test_a_long_chain_of_requirements_files_is_refused(tmp_path: Path) -> None:
    for number in range(2000):
        (tmp_path / f"{number}.txt").write_text(f"-r {number + 1}.txt\n")
    with bounded(), pytest.raises(InputError, match="is included through more than 50 files"):
        read_requirements(tmp_path / "0.txt")


SPECS = {
    "channels": "a::" * 20_000 + "!",
    "colons": ":" * COUNT + "!",
    "versions": "a " + ">=1," * 20_000 + "!",
    "dots": "python " + ">=1" + ".1" * 20_000 + "!",
    "logins": "https://" + "a:" * 20_000,
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_package_or_channel_of_a_conda_file(tmp_path: Path, spec: str) -> None:
    (tmp_path / "conda.yml").write_text(f"channels: ['{spec}']\ndependencies: ['{spec}']\n")
    with bounded(), suppress(InputError, InputErrors):
        read_conda(tmp_path / "conda.yml")


BEGIN, END = b"-----BEGIN PRIVATE KEY-----", b"-----END PRIVATE KEY-----"
CONTENTS = {
    "first lines": BEGIN * 30_000,
    "first lines and one last": BEGIN * 30_000 + END,
    "last lines": BEGIN + b"-----END " * 100_000,
    "words of a first line": b"-----BEGIN " + b"PRIVATE KEY " * 80_000,
    "capitals after each beginning": b"-----BEGIN AAAAAAAAAA" * 50_000,
    "capitals": b"-----BEGIN " + b"A" * 1_000_000,
    "dashes": b"-" * 1_000_000 + END,
    "empty keys": (BEGIN + END) * 20_000,
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("search", [lambda content: shows_key(content, [b"x" * 32]), key_numbers])
def test_a_search_for_private_keys(content: bytes, search: Callable[[bytes], object]) -> None:
    with bounded():
        assert not search(content)


@pytest.mark.parametrize(
    "text", ["wasbs://" + "?" * COUNT, "azureml:" + "?&" * COUNT, "azureml://datastores/x/" * 9000]
)
def test_an_address(text: str) -> None:
    with bounded(), suppress(InputError):
        read_address("path", text)


@pytest.mark.parametrize(
    "line", ["FROM " + "--a " * COUNT, "FROM" + " " * COUNT + "!", " " * COUNT, "FROM a AS" + " " * COUNT]
)
def test_a_line_of_a_dockerfile(line: str) -> None:
    with bounded():
        list(bases([line]))


@pytest.fixture
def diamonds(tmp_path: Path) -> Path:
    """A folder whose two links lead to the next folder, thirty times: a billion ways to its one file."""
    for level in range(30):
        (tmp_path / f"d{level}").mkdir()
        for link in "ab":
            (tmp_path / f"d{level}" / link).symlink_to(f"../d{level + 1}")
    (tmp_path / "d30").mkdir()
    (tmp_path / "d30" / "x").touch()
    return tmp_path


def test_links_of_data_that_double_at_each_level(diamonds: Path) -> None:
    with bounded(), pytest.raises(InputError, match="is reached by more than 8 ways of links"):
        plan_data(diamonds)
    with bounded(), pytest.raises(InputError, match="is reached by more than 8 ways of links"):
        list_files(diamonds)


def test_blanks_in_a_cell_of_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    with bounded():
        output.table(("job", "waits for"), [("t-1", " " * COUNT + "x"), ("t-2", "a-" * COUNT)])
    assert capsys.readouterr().out.count("x") == 1


def test_an_id_in_the_reason_of_a_job(job: JobState) -> None:
    with bounded():
        job_rows([job], seen={job.job: job.created}, short=True)


@pytest.fixture
def job() -> JobState:
    """A job with a reason of letters that could begin an id."""
    return JobState.from_dict(sample_state("t-1", state="QUEUED", reason="waits for " + "a" * COUNT))


def test_requirements_with_a_folder_on_each_line(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("-f .\n" * 10_000 + "six\n")
    with bounded():
        assert read_requirements(path).find_links == (tmp_path,)
