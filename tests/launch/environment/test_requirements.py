"""Requirements files: what a head gets of them, and what is refused with file, line and remedy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launch import access
from launch.access import Access
from launch.credentials import Credentials, known_credentials
from launch.environment.environment_spec import MOST_FOLDERS, Bare, ImageEnvironment, PythonEnvironment
from launch.environment.requirements import read_requirements, with_wheels
from launch.errors import InputError, InputErrors
from launch.jobfile import read_conda
from launch.remote.store.store import KEEP


def made(tmp_path: Path, text: str, **environ: str) -> PythonEnvironment:
    path = tmp_path / "requirements.txt"
    path.write_text(text)
    return read_requirements(path, Access(variables=environ))


@pytest.mark.parametrize(
    "spelling",
    [
        "scikit-learn[b,a]>=1.3,<2; python_version>'3.8'",
        'Scikit_Learn [a, b] <2, >= 1.3 ; python_version > "3.8"  # the same',
        "scikit.learn[a,b]\\\n>=1.3,<2;python_version > '3.8'",
    ],
    ids=["plain", "spaced", "continued"],
)
def test_spellings_of_one_requirement_are_one_environment(tmp_path: Path, spelling: str) -> None:
    found = made(tmp_path, spelling + "\n").requirements
    assert found == 'scikit-learn[a,b]<2,>=1.3; python_version > "3.8"'


def test_comments_and_continued_lines_are_joined_and_hashes_stay(tmp_path: Path) -> None:
    text = (
        "# what trains\n\n"
        "torch==2.8.0 \\\n    --hash=sha256:ab12 \\\n    --hash=sha256:cd34\n"
        'numpy >=1.26,  <3 ; python_version < "3.12"  # a comment\n'
        "git+https://github.com/org/repo@v1#egg=repo\n"
    )
    assert made(tmp_path, text) == PythonEnvironment(
        "torch==2.8.0 --hash=sha256:ab12 --hash=sha256:cd34\n"
        'numpy<3,>=1.26; python_version < "3.12"\n'
        "git+https://github.com/org/repo@v1#egg=repo",
        title="requirements.txt",
    )


def test_included_files_are_inlined_and_constraints_stay_constraints(tmp_path: Path) -> None:
    inner = tmp_path / "more"
    inner.mkdir()
    (inner / "base.txt").write_text("numpy\n-c limits.txt\n")
    (inner / "limits.txt").write_text("scipy<2\n-r further.txt\n")
    (inner / "further.txt").write_text("pandas<3\n")
    found = made(tmp_path, "torch\n--requirement=more/base.txt\n")
    assert (found.requirements, found.constraints) == ("torch\nnumpy", "scipy<2\npandas<3")


def test_options_that_uv_honours_in_a_file_stay(tmp_path: Path) -> None:
    text = (
        "-i https://pypi.example.com/simple\n--extra-index-url=https://download.pytorch.org/whl/cu126\n"
        "--only-binary :all:\n-f https://example.com/wheels\n--require-hashes\ntorch\n"
    )
    assert made(tmp_path, text).requirements.splitlines() == [
        "--index-url https://pypi.example.com/simple",
        "--extra-index-url https://download.pytorch.org/whl/cu126",
        "--only-binary :all:",
        "--find-links https://example.com/wheels",
        "--require-hashes",
        "torch",
    ]


def test_folders_of_wheels_are_sent_and_not_looked_for_on_the_head(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    found = made(tmp_path, "--find-links wheels\nmine==1.0\n")
    assert (found.requirements, found.find_links) == ("mine==1.0", (tmp_path / "wheels",))


def test_a_variable_is_filled_in_here_because_the_head_has_none(tmp_path: Path) -> None:
    text = "--index-url https://user:${TOKEN}@pypi.example.com/simple\ntorch\n"
    assert "user:secret@" in made(tmp_path, text, TOKEN="secret").requirements


def test_a_variable_that_the_user_did_not_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    text = "torch\n--index-url https://pypi.example.com/${TOKEN}/simple\n"
    with pytest.raises(
        InputError, match=r"requirements\.txt, line 2: \$\{TOKEN\}: .*; give --fill TOKEN"
    ) as error:
        made(tmp_path, text)
    assert "secret" not in str(error.value)


def test_each_variable_that_was_filled_in_is_noted_without_its_value(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("--index-url https://${HOST}/${TOKEN}\ntorch\n")
    access = Access(variables={"TOKEN": "secret", "HOST": "hidden", "OTHER": "x"})
    read_requirements(tmp_path / "requirements.txt", access)
    where = f"is filled in from this machine's environment ({tmp_path}/requirements.txt, line 1)"
    assert access.notes == [f"${{HOST}} {where}", f"${{TOKEN}} {where}"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-e .", "= '-e .': points at files of this machine; build a wheel of it (`pip wheel`)"),
        ("./mine", "= './mine': is a file of this machine; build a wheel"),
        ("src/mine", "is a file of this machine"),
        ("mine @ file:///home/me/mine", "is a file of this machine"),
        ("wheels/mine-1.0-py3-none-any.whl", "is a file of this machine"),
        ("--pre", "does not honour it in a file; name the wanted version"),
        ("--trusted-host pypi.example.com", "does not honour it in a file; serve the index over https"),
        (
            "-e git+https://h/b.git#egg=b&subdirectory=c",
            "; write b @ git+https://h/b.git#subdirectory=c without",
        ),
        ("-e git+https://me:secret@h/b.git", "; write git+https://***@h/b.git without -e"),
        ("-e hg+https://h/b", "is not fetched by uv, which installs the packages; write https://"),
        ("-e git+file:///srv/b", "points at files of this machine; build a wheel"),
        ("six @ file:///w/six-1.16.0-py3-none-any.whl", "; write six==1.16.0, and give the folder of the wh"),
        (
            "six @ git@h:a/six.git",
            "has an address that uv does not fetch; write https://…, git+https://… or git",
        ),
        (
            "git@h:a/six.git",
            "is not an address that uv fetches; write https://…, git+https://… or git+ssh://git@",
        ),
        ("svn+https://h/six", "is not an address that uv fetches"),
        ("--index-url simple", "is not the address of an index; give its https:// address"),
        ("six==abc", "is not a requirement; write a name and versions, e.g. torch>=2.8,<3"),
        ("six===abc", "is not a requirement (invalid version: 'abc'); write a name"),
        ("six>=2.*", "is not a requirement (.* suffix can only be used with"),
        ("six>=1<2", "is not a requirement (expected comma (within version specifier)"),
        ("six; python_versio < '3'", "is not a requirement (expected a marker variable or quoted string)"),
        ("six[a b]", "is not a requirement (expected comma between extra names)"),
        (f"six; {'(' * 4000}", "is not a requirement"),
        (f"six=={'1' * 5000}", "has 5005 characters; write a requirement of at most 4096"),
        ("six --hash=sha1:abcd", "has an option that uv does not honour; leave only --hash=sha256:…"),
        ("--use-feature fast-deps", "does not honour it in a file; leave it out"),
        ("torch --config-settings=a=b", "has an option that uv does not honour; leave only --hash="),
        ("torch=2.8", "is not a requirement; write a name and versions"),
        ("two words", "is not a requirement"),
        ("-r missing.txt", "missing.txt': cannot be read (No such file or directory)"),
        ("-r https://example.com/r.txt", "is not on this machine; download it"),
        ("--find-links nowhere", "nowhere is not a folder"),
        ("--index-url", "has no value; write it as --index-url VALUE"),
    ],
)
def test_what_a_head_could_not_use_is_refused_with_its_line(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        made(tmp_path, f"numpy\n{line}\n")
    assert str(caught.value).startswith(f"{tmp_path / 'requirements.txt'}, line 2")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "line", ["-e git+https://h/${TOKEN}/b.git", "six==${TOKEN}", "six; ${TOKEN} < '3'", "./${TOKEN}-1-x.whl"]
)
def test_no_error_shows_the_value_of_a_variable(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError) as caught:
        made(tmp_path, f"{line}\n", TOKEN="hf-s3cret")
    assert "s3cret" not in str(caught.value)


def test_all_mistakes_come_at_once_and_none_shows_a_password(tmp_path: Path) -> None:
    with pytest.raises(InputErrors) as caught:
        made(tmp_path, "-e .\nnumpy\nhttps://me:secret@example.com/a b\n")
    assert len(caught.value.errors) == 2
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("path", ["a/" * 100_000, "a" * 256, "../" * 2000])
def test_a_path_that_linux_cannot_have_is_refused_before_it_is_looked_up(tmp_path: Path, path: str) -> None:
    with pytest.raises(InputError, match=r"names no path .*file name too long"):
        made(tmp_path, f"-r {path}\n")


def test_a_file_that_includes_itself_and_an_empty_one_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("-r b.txt\n")
    (tmp_path / "b.txt").write_text("-r a.txt\n")
    with pytest.raises(InputError, match="includes itself"):
        made(tmp_path, "-r a.txt\n")
    with pytest.raises(InputError, match="has no requirement; name a package"):
        made(tmp_path, "# nothing\n")


def test_a_file_that_is_missing_too_large_or_not_text_is_refused_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "none.txt"
    with pytest.raises(InputError, match=r"none\.txt.*cannot be read \(No such file .*name a requirements"):
        read_requirements(path)
    path.write_bytes(b"torch\n" * 1_000_000)
    with pytest.raises(InputError, match=r"none\.txt.*is larger than \d+ bytes"):
        read_requirements(path)
    path.write_bytes(b"torch  # \xff\n")
    with pytest.raises(InputError, match=r"none\.txt.*is not UTF-8"):
        read_requirements(path)


def test_wheels_of_an_option_go_with_packages_and_nothing_else(tmp_path: Path) -> None:
    packages = PythonEnvironment("mine", title="requirements.txt")
    found = with_wheels(packages, [str(tmp_path)])
    assert isinstance(found, PythonEnvironment)
    assert found.find_links == (tmp_path,)
    image = with_wheels(ImageEnvironment("a/b:c", packages), [str(tmp_path)])
    assert isinstance(image, ImageEnvironment)
    assert image.python == found
    for nothing in (None, Bare(), ImageEnvironment("a/b:c")):
        with pytest.raises(
            InputError, match="has wheels, but nothing is to be installed; give --requirements"
        ):
            with_wheels(nothing, [str(tmp_path)])
    with pytest.raises(InputError, match=r"--find-links = 'nowhere': is not a folder"):
        with_wheels(packages, ["nowhere"])


def test_more_folders_of_wheels_than_a_head_keeps_are_refused(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(MOST_FOLDERS + 1)]
    for folder in folders:
        folder.mkdir()
    asked = PythonEnvironment("toolkit")
    assert with_wheels(asked, [str(one) for one in folders[1:]]) is not None
    refusal = "^--find-links and the conda file's channels: are 5 folders of this machine; .*; put the wheels"
    with pytest.raises(InputError, match=refusal):
        with_wheels(asked, [str(one) for one in folders])
    with pytest.raises(InputError, match=refusal):
        with_wheels(replace(asked, channels=tuple(folders[:1])), [str(one) for one in folders[1:]])
    assert MOST_FOLDERS < KEEP, "the job's code is among what a head keeps"


def test_a_repositorys_link_to_a_token_is_refused_under_the_name_that_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    token = tmp_path / ".cache/huggingface/token"
    token.parent.mkdir(parents=True)
    token.write_text("hf_AbCd")  # a package's name, as far as pip knows
    repository = tmp_path / "repository"
    repository.mkdir()
    for name, read in (("requirements.txt", read_requirements), ("conda.yml", read_conda)):
        (repository / name).symlink_to(token)
        with pytest.raises(InputError, match="credentials") as refused:
            read(repository / name, Access(folders=(tmp_path,)))
        assert str(token) in str(refused.value)


def test_a_repositorys_link_to_a_file_outside_needs_the_users_yes(tmp_path: Path) -> None:
    (tmp_path / "diary").write_text("numpy\n")
    (tmp_path / "repository").mkdir()
    link = tmp_path / "repository/requirements.txt"
    link.symlink_to("../diary")
    with pytest.raises(InputError, match=f"--allow-path {tmp_path}"):
        read_requirements(link)
    assert read_requirements(link, Access(folders=(tmp_path,))).requirements == "numpy"


def test_a_file_in_the_home_folder_that_the_user_names_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "requirements.txt").write_text("numpy\n")
    assert read_requirements(tmp_path / "requirements.txt").requirements == "numpy"


def test_this_machines_credentials_are_looked_up_once_however_many_folders_a_file_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Credentials] = []

    def look() -> Credentials:
        looked.append(known_credentials())
        return looked[-1]

    monkeypatch.setattr(access, "known_credentials", look)
    found = made(tmp_path, "-f .\n" * 50 + "mine==1.0\n")
    assert (found.find_links, len(looked)) == ((tmp_path,), 1)
