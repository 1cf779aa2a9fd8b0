"""What is said about modules and files that a failed job lacked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launch.code.failure_hints import PushedCode, missing_hints

NO_TORCH = "ModuleNotFoundError: No module named 'torch'"


def pushed(root: Path, files: dict[str, str], unpushed: tuple[str, ...] = ()) -> PushedCode:
    """A folder's code with these texts by path; ``unpushed`` files are on this machine alone."""
    for path in (*files, *unpushed):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(files.get(path, ""))
    return PushedCode(root, files.keys(), files.get)


@pytest.mark.parametrize(
    ("file", "text", "option"),
    [
        ("requirements.txt", "numpy\ntorch==2.8.0  # for CUDA\n", "--requirements"),
        ("requirements-gpu.txt", "Torch[extra]>=2\n", "--requirements"),
        ("requirements/gpu.txt", "torch @ https://example.com/t.whl\n", "--requirements"),
        ("conda.yml", "dependencies:\n  - python=3.11\n  - pytorch::pytorch=2.1\n", "--conda"),
        ("environment.yaml", "name: x\ndependencies:\n- pip:\n  - 'torch<3'\nchannels: [x]\n", "--conda"),
        ("env/conda_gpu.yml", "dependencies: [python=3.8, pip: [torch, numpy]]\n", "--conda"),
    ],
)
def test_the_file_of_the_code_that_lists_the_package_is_named_with_its_option(
    tmp_path: Path, file: str, text: str, option: str
) -> None:
    code = pushed(tmp_path, {"train.py": "", file: text})
    hint = f"no module torch: {file} lists it; launch with {option} {file}"
    assert missing_hints([NO_TORCH], code) == [hint]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("requirements.txt", "# torch\nnumpy\ntorchvision\n--index-url https://torch/\n-r torch\n"),
        ("conda.yml", "name: torch\nchannels: [pytorch, torch]\ndependencies: [numpy]\n"),
        ("notes.txt", "torch\n"),
        ("requirements.txt", ""),
    ],
)
def test_where_no_file_lists_the_package_that_is_said(tmp_path: Path, file: str, text: str) -> None:
    (hint,) = missing_hints([NO_TORCH], pushed(tmp_path, {"train.py": "", file: text}))
    assert hint == (
        "no module torch: no requirements or conda file of the code lists it; add its package to one, and "
        "launch with --requirements FILE or --conda FILE"
    )


@pytest.mark.parametrize(
    "line",
    [
        "[rank3]: ModuleNotFoundError: No module named 'torch'",
        "/usr/bin/python3: No module named torch",
        "/usr/bin/python3: Error while finding module specification for 'torch.distributed.run' "
        "(ModuleNotFoundError: No module named 'torch')",
        "no rank was started: node[000000-000001]: python3 has no module torch: name what is missing",
    ],
)
def test_every_way_in_which_python_and_the_nodes_report_a_missing_module_is_known(
    tmp_path: Path, line: str
) -> None:
    code = pushed(tmp_path, {"requirements.txt": "torch\n"})
    assert missing_hints(["Traceback", line], code) == [
        "no module torch: requirements.txt lists it; launch with --requirements requirements.txt"
    ]


def test_each_of_several_modules_gets_its_hint_once(tmp_path: Path) -> None:
    code = pushed(tmp_path, {"requirements.txt": "scikit-learn\nPyYAML\n"})
    lines = ["python3 has no module sklearn, yaml: name what", "ModuleNotFoundError: No module named 'yaml'"]
    assert missing_hints(lines, code) == [
        f"no module {name}: requirements.txt lists it; launch with --requirements requirements.txt"
        for name in ("sklearn", "yaml")
    ]


def test_of_a_job_with_an_environment_that_one_is_named(tmp_path: Path) -> None:
    code = pushed(tmp_path, {"requirements.txt": "torch\n"})
    assert missing_hints([NO_TORCH], code, "conda.yml") == [
        "no module torch in the job's environment, conda.yml; requirements.txt lists it"
    ]
    assert missing_hints([NO_TORCH], code, "requirements.txt") == [
        "no module torch in the job's environment, requirements.txt"
    ]


def test_where_the_code_is_not_known_no_file_is_named() -> None:
    remedy = "name its package in a file, and launch with --requirements FILE or --conda FILE"
    assert missing_hints([NO_TORCH, "No such file or directory: 'data/x'"]) == [f"no module torch: {remedy}"]


def test_a_module_of_the_code_in_another_folder_than_the_scripts_is_no_package(tmp_path: Path) -> None:
    code = pushed(tmp_path, {"src/train.py": "", "lib/net/__init__.py": ""})
    (hint,) = missing_hints(["ModuleNotFoundError: No module named 'net'"], code)
    assert hint.startswith("no module net on Python's path: lib/net/__init__.py of the code has its name; ")
    assert hint.endswith("launch with --env PYTHONPATH=lib")


def test_of_a_submodule_that_its_package_lacks_no_requirements_file_is_named(tmp_path: Path) -> None:
    code = pushed(tmp_path, {"requirements.txt": "torch\n"})
    assert missing_hints(["ModuleNotFoundError: No module named 'torch.nonsense'"], code) == []


@pytest.mark.parametrize(
    ("line", "path", "front"),
    [
        ("ModuleNotFoundError: No module named 'net'", "src/net.py", "no module net: "),
        (
            "ModuleNotFoundError: No module named 'net.deep'",
            "src/net/deep/__init__.py",
            "no module net.deep: ",
        ),
        ("ImportError: cannot import name 'deep' from 'net' (/x/net/__init__.py)", "src/net/deep.py", ""),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/x.csv'", "data/x.csv", ""),
        ("No such file or directory: './data'", "data", ""),
        (
            "No such file or directory: '/home/azureuser/.ranklift/jobs/a-1/work/src/x.json'",
            "src/x.json",
            "",
        ),
        ("cat: data/x: No such file or directory", "data/x", ""),
        (
            "python3: can't open file '/home/a/.ranklift/jobs/a-1/work/b.py': [Errno 2] No such file",
            "b.py",
            "",
        ),
    ],
)
def test_what_is_on_this_machine_and_was_not_pushed_is_named(
    tmp_path: Path, line: str, path: str, front: str
) -> None:
    files = {"src/train.py": "", "requirements.txt": "net\n"}
    code = pushed(tmp_path, files, (path if "." in path else f"{path}/part",))
    hint = f"{front}{path} is in {tmp_path} and was not pushed: see .gitignore and .ranklift-ignore there"
    assert missing_hints([line], code) == [hint]


@pytest.mark.parametrize(
    "path", ["data/x", "data", "none/x", "../outside", "/etc/passwd", "", "x" * 500, "a\0b"]
)
def test_nothing_is_said_of_files_that_were_pushed_or_that_the_code_does_not_have(
    tmp_path: Path, path: str
) -> None:
    (tmp_path / "outside").write_text("")
    code = pushed(tmp_path / "code", {"data/x": ""})
    assert missing_hints([f"No such file or directory: '{path}'"], code) == []


def test_other_last_lines_get_no_hint(tmp_path: Path) -> None:
    code = pushed(tmp_path, {"requirements.txt": "torch\n"})
    assert missing_hints(["RuntimeError: CUDA out of memory", "exit status 1", ""], code) == []


@pytest.mark.parametrize(
    "printed",
    [
        "ModuleNotFoundError: No module named '{}'",
        "ImportError: cannot import name '{}' from 'net'",
        "No such file or directory: 'net/{}.py'",
    ],
)
def test_of_the_many_names_that_a_job_may_print_the_first_get_a_hint(tmp_path: Path, printed: str) -> None:
    names = [f"m{number}" for number in range(200)]
    code = pushed(tmp_path, {"net/__init__.py": ""}, tuple(f"net/{name}.py" for name in names))
    hints = missing_hints([" ".join(map(printed.format, names))] * 20, code)
    assert len(hints) == 8
    assert all(f"net/{name}.py is in" in hint for name, hint in zip(names, hints, strict=False))


def test_requirements_and_conda_files_are_read_once_for_all_modules(tmp_path: Path) -> None:
    code = pushed(tmp_path, {"conda.yml": "dependencies: [yaml]\n", "requirements.txt": "numpy\n"})
    reads: list[str] = []

    def read(path: str) -> str | None:
        reads.append(path)
        return code.read(path)

    lines = [f"ModuleNotFoundError: No module named '{name}'" for name in ("torch", "numpy", "yaml", "net")]
    hints = missing_hints(lines, replace(code, read=read))
    assert ["; launch with" in hint for hint in hints] == [False, True, True, False]
    assert reads == ["conda.yml", "requirements.txt"]


@pytest.mark.parametrize("file", ["conda.yml", "requirements.txt"])
@pytest.mark.parametrize("item", ["-" * 1_000_000, "'- " * 300_000, "a" * 1_000_000 + ":"])
def test_a_line_of_endless_length_in_such_a_file_is_read_in_one_go(
    tmp_path: Path, file: str, item: str
) -> None:
    code = pushed(tmp_path, {file: f"dependencies:\n {item}\n torch\n"})
    (hint,) = missing_hints([NO_TORCH], code)
    assert f"{file} lists it" in hint


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: "
        "'/home/azureuser/.ranklift/environments/0123/lib/python3.11/site-packages/six.py'",
        "   ERROR: Could not restore '/home/azureuser/.ranklift/environments/0123/lib/x/' from '/tmp'",
        "  failed to create directory `/home/azureuser/.ranklift/environments/0123/lib/x`: Permission denied",
        "         `/home/azureuser/.ranklift/environments/0123/lib/x`:",
        "  environment location: /home/azureuser/.ranklift/environments/0123",
    ],
    ids=["pip", "pip of another version", "uv", "uv, wrapped", "conda"],
)
def test_packages_that_a_job_could_not_install_belong_into_the_list(line: str) -> None:
    hint = (
        "jobs share the job's environment, conda.yml, and cannot change it: "
        "list the packages that it lacks there, and set PYTHONPATH for those of the code itself"
    )
    assert missing_hints(["Collecting six", line], None, "conda.yml") == [hint]
    assert missing_hints(["Permission denied: '/data/environments/x'"], None, "conda.yml") == []
