"""What files of a repository may read of the operator's machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.access import Access, repository_of
from launch.code.snapshot import plan_data
from launch.data.data_spec import AssetName
from launch.environment.environment_spec import PythonEnvironment
from launch.environment.requirements import read_requirements, with_wheels
from launch.errors import InputError, InputErrors
from launch.jobfile import Data, find_asset, read, read_asset, resolve, with_assets
from launch.jobfile.environment_reference import read_name


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """A git work tree ``repo`` with a job, and a folder ``private`` beside it."""
    for folder in (
        "repo/.git",
        "repo/jobs/code",
        "repo/wheels",
        "private/noarch",
        "repo/data",
        "repo/environments",
    ):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "repo/.git/HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "repo/jobs/code/train.py").write_text("")
    for file in ("secret.txt", "Dockerfile", "requirements.txt", "noarch/repodata.json"):
        (tmp_path / "private" / file).write_text("torch\n")
    (tmp_path / "private/MLTable").write_text("paths: []\n")
    (tmp_path / "private/conda.yml").write_text("dependencies: [{pip: [torch]}]\n")
    return tmp_path


def write_job(places: Path, text: str) -> Path:
    path = places / "repo/jobs/job.yml"
    path.write_text(f"command: python train.py\n{text}\n")
    return path


OUTSIDE = {
    "code": "code: PRIVATE",
    "code that is a file": "code: PRIVATE/secret.txt",
    "folder": "inputs: {x: {type: uri_folder, path: PRIVATE}}",
    "file": "inputs: {x: {type: uri_file, path: PRIVATE/secret.txt}}",
    "table": "inputs: {x: {type: mltable, path: PRIVATE}}",
    "model": "inputs: {x: {type: custom_model, path: PRIVATE}}",
    "requirements": "ranklift: {environment: {requirements: PRIVATE/requirements.txt}}",
    "conda file": "environment: {conda_file: PRIVATE/conda.yml}",
    "channel": "environment: {conda_file: {channels: ['file://PRIVATE'], dependencies: [a]}}",
    "find-links": "environment: {conda_file: {dependencies: [{pip: [torch, --find-links PRIVATE]}]}}",
    "find-links of a URL": "environment: {conda_file: {dependencies: [{pip: [torch, '--find-links=file://PRIVATE']}]}}",
    "included file": "environment: {conda_file: {dependencies: [{pip: [-r PRIVATE/requirements.txt]}]}}",
    "constraints": "environment: {conda_file: {dependencies: [{pip: [torch, -c PRIVATE/requirements.txt]}]}}",
    "build": "environment: {build: {path: PRIVATE}}",
}


@pytest.fixture(params=["absolute", "relative", "dots within", "link", "link and dots"])
def written(request: pytest.FixtureRequest, places: Path) -> str:
    """A path of ``private``, as a job file may write it."""
    (places / "repo/jobs/link").symlink_to(places / "private")
    (places / "repo/jobs/deep").symlink_to(places / "private/noarch")
    forms = {"absolute": str(places / "private"), "relative": "../../private", "link": "link"}
    return {**forms, "dots within": "./code/../../../private", "link and dots": "./deep/../"}[request.param]


@pytest.mark.parametrize("text", OUTSIDE.values(), ids=OUTSIDE)
class TestOutsideOfTheRepository:
    """Each key of a file that names a path of this machine, in each form of a path."""

    def test_is_refused_with_line_full_path_and_remedy(self, places: Path, text: str, written: str) -> None:
        job = write_job(places, text.replace("PRIVATE", written))
        with pytest.raises(InputError, match=f"{job}, line 2: ") as error:
            read(job)
        refusal = str(error.value)
        assert f"'{places}/private" in refusal
        assert f"lies outside of the repository {places}/repo; give --allow-path {places}/private" in refusal

    def test_is_read_where_the_user_allows_it_and_noted(self, places: Path, text: str, written: str) -> None:
        access = Access(folders=(places / "private",))
        job = read(write_job(places, text.replace("PRIVATE", written)), access=access)
        assert job.command == "python train.py"
        assert len(access.notes) == 1
        assert access.notes[0].startswith(f"read from outside of the repository: {places}/private")
        assert f"{places}/repo/jobs/job.yml, line 2" in access.notes[0]

    def test_is_read_after_one_yes_to_a_question_with_its_full_path(
        self, places: Path, text: str, written: str
    ) -> None:
        questions: list[str] = []

        def yes(question: str) -> bool:
            questions.append(question)
            return True

        read(write_job(places, text.replace("PRIVATE", written)), access=Access(ask=yes))
        (question,) = questions
        assert "line 2" in question
        assert f"names {places}/private" in question

    def test_is_refused_after_a_no(self, places: Path, text: str, written: str) -> None:
        with pytest.raises(InputError, match="lies outside of the repository"):
            read(write_job(places, text.replace("PRIVATE", written)), access=Access(ask=lambda _: False))

    def test_is_refused_where_it_holds_credentials_whatever_the_user_allows(
        self, places: Path, text: str, written: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AZURE_CONFIG_DIR", str(places / "private"))
        access = Access(folders=(places,), ask=lambda _: True)
        with pytest.raises(InputError, match="holds credentials of this machine, which never leave it"):
            read(write_job(places, text.replace("PRIVATE", written)), access=access)


def test_what_lies_in_the_work_tree_around_the_job_file_is_read(places: Path) -> None:
    (places / "repo/data/table.csv").write_text("a")
    access = Access()
    job = read(
        write_job(places, "code: ../jobs/code\ninputs: {x: {type: uri_file, path: ../data/table.csv}}"),
        access=access,
    )
    assert job.code == places / "repo/jobs/code"
    assert access.notes == []


def test_without_a_work_tree_the_repository_is_the_job_files_folder(places: Path) -> None:
    (places / "repo/.git/HEAD").unlink()
    read(write_job(places, "code: code"))
    with pytest.raises(InputError, match=f"outside of the repository {places}/repo/jobs"):
        read(write_job(places, "code: ../wheels"))


def test_a_home_folder_is_no_repository_and_nor_is_a_work_tree_that_holds_one(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(places / "repo/jobs"))
    assert repository_of(places / "repo/jobs") is None
    assert repository_of(places / "repo") is None
    assert repository_of(places / "repo/jobs/code") == places / "repo/jobs/code"
    with pytest.raises(InputError, match="lies outside of any repository: your home folder is none"):
        read(write_job(places, "code: code"))


def test_a_path_that_the_user_types_is_the_users_word(places: Path) -> None:
    job = write_job(places, "inputs: {x: {type: uri_folder, path: ../data}}")
    read(job, [("inputs.x.path", str(places / "private"))])


class TestATypedPathWithLinks:
    """What the user types leads through links, and what they lead to is the word of who made them."""

    @pytest.fixture
    def linked(self, places: Path) -> Path:
        """The folder of the repository that has links."""
        folder = places / "repo/jobs"
        for name, target in {
            "out": "../../private",
            "absolute": str(places / "private"),
            "first": "second",
            "second": "code/third",
            "code/third": "../../../private",
            "inner": "../data",
            "circle": "circle",
        }.items():
            (folder / name).symlink_to(target)
        (places / "repo/data/table").mkdir()
        return folder

    @pytest.mark.parametrize(
        ("typed", "real"),
        [
            ("out", "private"),
            ("absolute", "private"),
            ("first", "private"),
            ("out/noarch", "private/noarch"),
            ("first/noarch", "private/noarch"),
            ("out/secret.txt", "private/secret.txt"),
            ("out/../private/noarch", "private/noarch"),
            ("inner/../jobs/out", "private"),
        ],
    )
    @pytest.mark.parametrize("is_work_tree", [True, False])
    def test_one_out_of_the_repository_needs_a_word_of_the_user(
        self, places: Path, linked: Path, typed: str, real: str, is_work_tree: bool
    ) -> None:
        if not is_work_tree:
            (places / "repo/.git/HEAD").unlink()
        with pytest.raises(InputError, match=f"'{places}/{real}': lies outside of the repository") as error:
            Access().typed("source", linked / typed)
        assert f"give --allow-path {places}/private" in str(error.value)
        questions: list[str] = []
        access = Access(ask=lambda question: not questions.append(question))  # type: ignore[func-returns-value]
        for _ in range(2):
            assert access.typed("source", linked / typed)[1] == places / real
        assert [f"source names {places}/{real}, outside of the repository" in one for one in questions] == [
            True
        ]
        allowed = Access(folders=(places / "private",))
        assert allowed.typed("source", linked / typed)[1] == places / real
        assert allowed.notes == [f"read from outside of the repository: {places}/{real} (source)"]

    @pytest.mark.parametrize("typed", ["inner", "inner/table", "inner/../data/table", "inner/nothing"])
    def test_one_that_stays_inside_is_followed(self, linked: Path, typed: str) -> None:
        access = Access()
        access.typed("source", linked / typed)
        assert access.notes == []

    def test_one_in_a_home_folder_is_the_users_own_but_not_where_it_leads_to_a_repositorys(
        self, places: Path, linked: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home = places / "home"
        home.mkdir()
        (home / "own").symlink_to(places / "private")
        (home / "theirs").symlink_to(linked / "out")
        monkeypatch.setenv("HOME", str(home))
        assert Access().typed("source", home / "own")[1] == places / "private"
        with pytest.raises(InputError, match=f"outside of the repository {places}/repo;"):
            Access().typed("source", home / "theirs")

    def test_one_of_the_machine_is_nobodys_repository(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.geteuid", lambda: 1000)
        assert Path("/var/run").is_symlink()
        assert Access().typed("source", Path("/var/run"))[1] == Path("/run")

    @pytest.mark.parametrize("name", [".ssh", ".azure"])
    @pytest.mark.parametrize("below", ["", "/keys"])
    def test_one_to_credentials_is_refused_whatever_the_user_allows(
        self, places: Path, linked: Path, name: str, below: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(places / "private"))
        (places / "private" / name / "keys").mkdir(parents=True)
        (linked / "data").symlink_to(f"out/{name}")
        access = Access(folders=(places,), ask=lambda _: True)
        for typed in (f"data{below}", f"out/{name}{below}"):
            with pytest.raises(InputError, match="holds credentials of this machine, which never leave it"):
                access.typed("source", linked / typed)

    def test_one_in_a_circle_ends_nowhere(self, linked: Path) -> None:
        assert Access().typed("source", linked / "circle")[1] == linked / "circle"

    def test_a_job_file_an_asset_and_wheels_are_typed_too(self, places: Path, linked: Path) -> None:
        (places / "private/job.yml").write_text("command: python train.py\n")
        (places / "private/iris.yml").write_text("name: iris\npath: secret.txt\n")
        with pytest.raises(InputError, match=f"file = '{places}/private/job.yml': lies outside"):
            read(linked / "out/job.yml")
        with pytest.raises(InputError, match=f"file = '{places}/private/iris.yml': lies outside"):
            read_asset(linked / "out/iris.yml")
        with pytest.raises(InputError, match=f"--find-links = '{places}/private/noarch': lies outside"):
            with_wheels(PythonEnvironment("torch"), [str(linked / "out/noarch")])
        job = write_job(places, "inputs: {x: {type: uri_folder, path: ../data}}")
        with pytest.raises(InputError, match=rf"--set inputs\.x\.path.*'{places}/private': lies outside"):
            read(job, [("inputs.x.path", "out")])


def test_a_name_that_is_too_long_is_no_stacks_folder(places: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_requirements(places / ("x" * 300))


def test_credentials_are_refused_though_the_user_types_them(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(places / "private"))
    (places / "private/.ssh").mkdir()
    job = write_job(places, "inputs: {x: {type: uri_folder, path: ../data}}")
    with pytest.raises(InputError, match=r"--set inputs\.x\.path.*holds credentials"):
        read(job, [("inputs.x.path", "~/.ssh")])


def test_a_requirements_file_that_the_user_names_reads_its_own_repository_alone(places: Path) -> None:
    path = places / "repo/jobs/requirements.txt"
    (places / "repo/more.txt").write_text("numpy\n")
    path.write_text("-r ../more.txt\n-c ../../private/secret.txt\n-f ../../private\n")
    with pytest.raises(InputErrors) as error:
        read_requirements(path)
    assert [f"{path}, line {line} = '{places}/private" in str(error.value) for line in (1, 2, 3)] == [
        False,
        True,
        True,
    ]


def test_a_file_in_an_allowed_folder_reads_no_more_than_that_folder(places: Path) -> None:
    (places / "third").mkdir()
    (places / "private/requirements.txt").write_text("-c secret.txt\n-f ../third\n")
    path = places / "repo/requirements.txt"
    path.write_text("-r ../private/requirements.txt\n")
    with pytest.raises(InputError, match=f"{places}/private/requirements.txt, line 2 = '{places}/third'"):
        read_requirements(path, Access(folders=(places / "private",)))


def test_a_data_asset_and_an_environment_by_name_read_no_more_than_their_repository(places: Path) -> None:
    (places / "repo/data/iris.yml").write_text("name: iris\ntype: uri_folder\npath: ../../private\n")
    (places / "repo/environments/own.yml").write_text("name: own\nbuild: {path: ../../private}\n")
    job = read(write_job(places, "inputs: {x: {type: uri_folder, path: 'azureml:iris@latest'}}"))
    with pytest.raises(InputError, match=r"iris\.yml, line 3: path.*lies outside"):
        with_assets(job, [places / "repo"])
    with pytest.raises(InputError, match=r"iris\.yml, line 3: path.*lies outside"):
        read_asset(places / "repo/data/iris.yml")
    with pytest.raises(InputError, match=r"own\.yml, line 2: build\.path.*lies outside"):
        resolve(read_name("--environment", "own"), [places / "repo"])


def test_a_data_asset_and_an_environment_that_are_links_out_of_the_repository_are_refused(
    places: Path,
) -> None:
    (places / "private/iris.yml").write_text("name: iris\npath: secret.txt\n")
    (places / "private/own.yml").write_text("name: own\nimage: python\n")
    (places / "repo/data/iris.yml").symlink_to("../../private/iris.yml")
    (places / "repo/environments/own.yml").symlink_to("../../private/own.yml")
    job = read(write_job(places, "inputs: {x: {type: uri_file, path: 'azureml:iris@latest'}}"))
    with pytest.raises(InputError, match=f"'{places}/private/iris.yml': lies outside"):
        with_assets(job, [places / "repo"])
    with pytest.raises(InputError, match=f"'{places}/private/own.yml': lies outside"):
        resolve(read_name("--environment", "own"), [places / "repo"])


def test_a_file_keeps_the_name_of_the_link_that_the_job_file_names(places: Path) -> None:
    (places / "repo/data/2026.csv").write_text("a")
    (places / "repo/data/latest.csv").symlink_to("2026.csv")
    job = read(write_job(places, "inputs: {x: {type: uri_file, path: ../data/latest.csv}}"))
    data = job.inputs["x"]
    assert isinstance(data, Data)
    assert (data.local, data.real) == (places / "repo/data/latest.csv", places / "repo/data/2026.csv")
    assert [entry.path for entry in plan_data(places / "repo/data/latest.csv").entries] == ["latest.csv"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("version", "9" * 5001), ("version", "1/../../x"), ("version", "-1"), ("version", "a b")),
        *(("name", "../x"), ("name", "a/b"), ("name", "x" * 101)),
    ],
)
def test_an_asset_whose_name_or_version_is_none_for_a_file_is_refused_with_its_line(
    tmp_path: Path, key: str, value: str
) -> None:
    path = tmp_path / "iris.yml"
    asset = {"name": "iris", "version": "1", "path": "https://example.com/iris.csv", key: value}
    path.write_text("".join(f'{name}: "{text}"\n' for name, text in asset.items()))
    with pytest.raises(InputError, match=rf"iris.yml, line .: {key} = .*: is not at most 100 letters"):
        read_asset(path)


def test_versions_of_other_digits_are_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number, version in enumerate(("7", "٣", "²", "0" * 50 + "8")):
        text = f'name: iris\nversion: "{version}"\npath: azureml://datastores/d/paths/iris\n'
        (tmp_path / "data" / f"{number}.yml").write_text(text)
    assert find_asset(AssetName("iris", ""), "here", [tmp_path]).version == "0" * 50 + "8"
