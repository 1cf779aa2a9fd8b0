"""What a job wrote is copied beside what is here: nothing of the script's folder is replaced or obeys it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from launch.azureml import Run, UserErrorException
from tests.launch.azureml.fake_fab import NODES, FakeFab

Download = Callable[[Run], object]


def hold_all(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in folder.rglob("*") if path.is_file()}


def each_alone(run: Run) -> None:
    for name in run.get_file_names():
        run.download_file(name, name.removeprefix("outputs/"))


DOWNLOADS: list[Download] = [
    lambda run: run.download_files("outputs", append_prefix=False),
    lambda run: run.download_files("outputs", str(Path.cwd()), append_prefix=False),
    lambda run: run.download_files("outputs", output_paths=["deep/er/x.txt", *"abcd", "submit.py"]),
    each_alone,
]


@pytest.fixture
def submit(files: FakeFab) -> Path:
    """The user's script, in the place of which the job has written one of its own."""
    path = Path("submit.py")
    path.write_text("mine")
    files.file(f"outputs/{NODES[0]}/submit.py", "a job's")
    return path


@pytest.mark.parametrize("download", DOWNLOADS)
def test_what_differs_is_named_and_stays(submit: Path, run: Run, download: Download) -> None:
    with pytest.raises(UserErrorException, match=r"submit.py is there with another content"):
        download(run)
    assert submit.read_text() == "mine"


@pytest.mark.parametrize("download", DOWNLOADS[:3])
def test_no_file_is_copied_where_one_cannot_be(submit: Path, run: Run, download: Download) -> None:
    before = hold_all(Path.cwd())
    with pytest.raises(UserErrorException):
        download(run)
    assert hold_all(Path.cwd()) == before


def test_logs_replace_none_that_differ(files: FakeFab, run: Run) -> None:
    run.get_all_logs("logs")
    assert len(run.get_all_logs("logs")) == 4
    Path("logs/user_logs/std_log_process_2.txt").write_text("rank")
    with pytest.raises(UserErrorException, match=r"^destination = 'logs': .*std_log_process_2.txt is there"):
        run.get_all_logs("logs")


def test_equal_files_may_be_copied_again(files: FakeFab, run: Run) -> None:
    run.download_files(output_directory="got")
    Path("got/outputs/model.pt").chmod(0o400)
    run.download_files(output_directory="got")
    run.download_file("outputs/model.pt", "got/outputs/model.pt")


def test_of_many_files_that_differ_ten_are_named(files: FakeFab, run: Run) -> None:
    for number in range(30):
        files.file(f"outputs/{NODES[0]}/many/{number}", "a job's")
        Path("many").mkdir(exist_ok=True)
        Path(f"many/{number}").write_text("mine")
    with pytest.raises(UserErrorException, match="20 more; name another place") as caught:
        run.download_files("outputs", append_prefix=False)
    assert str(caught.value).count("is there with") == 10


@pytest.mark.parametrize(
    "folder", [".git", ".GIT", "a/.Git", ".g\u200cit", "git~1", ".git.", ".ranklift/dev"]
)
@pytest.mark.parametrize("download", [DOWNLOADS[0], each_alone])
def test_no_file_comes_into_a_folder_whose_settings_are_obeyed(
    files: FakeFab, run: Run, folder: str, download: Download
) -> None:
    files.file(f"outputs/{NODES[0]}/{folder}/config", "[core]\n\tfsmonitor = false\n")
    with pytest.raises(UserErrorException, match="config would be in a folder of settings"):
        download(run)
    assert not Path(folder).exists()


def test_no_file_comes_in_the_place_of_gits_folder(files: FakeFab, run: Run) -> None:
    files.file(f"outputs/{NODES[0]}/.git", "gitdir: /elsewhere")
    with pytest.raises(UserErrorException, match=r"got/.git would be in a folder of settings"):
        run.download_files("outputs", "got", append_prefix=False)


@pytest.mark.parametrize("download", [*DOWNLOADS[:2], lambda run: run.download_files("outputs/a", "got")])
@pytest.mark.parametrize("names", [("HEAD", "objects/x", "refs/x"), ("HEAD", "commondir")])
def test_no_files_make_a_repository_of_git_together(
    files: FakeFab, run: Run, download: Download, names: tuple[str, ...]
) -> None:
    for name in (*names, "config"):
        files.file(f"outputs/{NODES[0]}/a/{name}", "text")
    before = hold_all(Path.cwd())
    with pytest.raises(UserErrorException, match="a/config would be part of a git repository"):
        download(run)
    assert hold_all(Path.cwd()) == before


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ("only.txt/b", r"only.txt is a folder of other targets"),
        ("ONLY.txt/b", r"only.txt is a folder of other targets"),
        ("Only.txt", r"only.txt is the target of .*Only.txt too"),
    ],
)
@pytest.mark.parametrize("download", DOWNLOADS[:2])
def test_no_file_is_copied_where_two_have_one_place(
    files: FakeFab, run: Run, download: Download, other: str, problem: str
) -> None:
    files.file(f"outputs/{NODES[0]}/{other}", "a job's")
    before = hold_all(Path.cwd())
    with pytest.raises(UserErrorException, match=problem):
        download(run)
    assert hold_all(Path.cwd()) == before


def test_each_alone_neither(files: FakeFab, run: Run) -> None:
    for name in ("HEAD", "objects/x", "refs/x"):
        files.file(f"outputs/{NODES[0]}/a/{name}", "text")
    with pytest.raises(UserErrorException, match="a/refs/x would be part of a git repository"):
        each_alone(run)


@pytest.mark.parametrize("download", [DOWNLOADS[0], DOWNLOADS[1], each_alone])
def test_no_file_comes_through_a_link(
    files: FakeFab, run: Run, download: Download, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    Path("deep").symlink_to(elsewhere)
    with pytest.raises(UserErrorException, match="deep is not a folder"):
        download(run)
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("target", ["nowhere", "outputs"])
def test_a_link_in_the_place_of_a_file_is_no_file(files: FakeFab, run: Run, target: str) -> None:
    Path("only.txt").symlink_to(target)
    with pytest.raises(UserErrorException, match=r"only.txt is there with another content"):
        run.download_files("outputs", append_prefix=False)
    assert not Path("nowhere").exists()


def test_a_folder_that_the_script_names_may_be_a_link(
    files: FakeFab, run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    disk = tmp_path_factory.mktemp("disk")
    Path("outputs").symlink_to(disk)
    run.download_files("outputs", "outputs", append_prefix=False)
    run.download_file("outputs/model.pt", "outputs/best.pt")
    assert (disk / "best.pt").read_text() == (disk / "model.pt").read_text() == "of the head"
