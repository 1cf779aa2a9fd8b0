"""Job files: what is taken, and what is refused with its line. The files are in ``files/``.

``good`` and ``bad`` are what Azure ML's own client takes and refuses too, ``stricter`` what it takes alone
(``tests/frameworks/test_oracles_jobfile.py`` asks it). A refused file's last line says what is to be told.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from launch.errors import InputError, InputErrors
from launch.jobfile import Data, JobFile, read
from launch.jobfile.schema import Own

FILES = Path(__file__).parent / "files"
GOOD = sorted(FILES.glob("good/*.yml"))
REFUSED = sorted(FILES.glob("bad/*.yml")) + sorted(FILES.glob("stricter/*.yml"))


def good(name: str) -> JobFile:
    return read(FILES / "good" / f"{name}.yml")


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "job.yml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_file_is_taken(path: Path) -> None:
    assert read(path).command


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_wrong_file_is_refused_in_one_line_with_file_line_key_value_and_remedy(path: Path) -> None:
    line, _, words = path.read_text().splitlines()[-1].removeprefix("# line ").partition(": ")
    with pytest.raises(InputError) as caught:
        read(path)
    result = str(caught.value)
    assert result.startswith(f"{path}, line {line}: ")
    assert words in result
    assert "; " in result, "says what to do"
    assert len(result.splitlines()) == 1


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, "comand: x\nlimits:\n  timeout: soon\nresources:\n  instance_count: 0\n")
    with pytest.raises(InputErrors) as caught:
        read(path)
    assert [error.key.removeprefix(f"{path}, ") for error in caught.value.errors] == [
        *("line 1: comand", "line 1", "line 5: resources.instance_count", "line 3: limits.timeout")
    ]
    assert len(str(caught.value).splitlines()) == 4


def test_a_key_that_stands_twice_at_the_top_is_told_once(tmp_path: Path) -> None:
    path = written(tmp_path, "code: .\ncompute: x\ncode: b\n")
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value) == f"{path}, line 3: code: is given twice, first in line 1; keep one of the two"


def test_what_means_nothing_here_is_listed_in_one_notice() -> None:
    job = good("everything-without-meaning")
    assert job.notice == (
        f"{job.path}: ignored here: compute, services, identity, "
        "queue_settings, properties, resources.instance_type, resources.docker_args, "
        "resources.locations, resources.max_instance_count, resources.properties"
    )
    assert read(FILES / "good" / "uri-file.yml").unused == ("inputs.table.mode",)


def test_a_file_without_an_environment_will_do(tmp_path: Path) -> None:
    assert read(written(tmp_path, "command: hostname\n")).notice is None


def test_paths_are_relative_to_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert good("code-folder").code == FILES / "good" / "src"
    assert good("uri-file").inputs["table"] == Data("uri_file", FILES / "good" / "table.csv", None)
    assert good("path-on-the-nodes").inputs["images"] == Data("uri_folder", None, "/mnt/images")


@pytest.mark.parametrize("given", ["data.csv", "file:data.csv", "file:./data.csv"])
def test_file_without_a_slash_is_a_local_path_as_in_azure_mls_client(tmp_path: Path, given: str) -> None:
    (tmp_path / "data.csv").touch()
    job = read(written(tmp_path, f"command: cat a\ninputs: {{a: {{type: uri_file, path: '{given}'}}}}\n"))
    assert job.inputs["a"] == Data("uri_file", tmp_path / "data.csv", None)


def test_plain_inputs_are_text_as_azure_ml_makes_it() -> None:
    assert good("yaml-numbers").inputs == {
        "octal": "8",
        "exponent": "1e-3",
        "hex": "16",
        "wide": "1000",
        "third": "1.5",
    }
    assert good("booleans").inputs == {"a": "True", "b": "False", "text": "true"}


def test_variables_stay_as_they_are_written(tmp_path: Path) -> None:
    path = written(tmp_path, "command: env\nenvironment_variables: {A: 010, B: true, C: 1.50, D: 'x y'}\n")
    assert read(path).env == {"A": "010", "B": "true", "C": "1.50", "D": "x y"}


def test_an_alias_and_a_merge_are_followed_and_named_by_their_own_line(tmp_path: Path) -> None:
    assert good("anchors").tags == {"A": "b", "C": "d"}
    assert good("merge-keys").env == {"A": "one", "B": "three"}
    path = written(tmp_path, "command: env\ntags: &t\n  a: b\nlimits:\n  timeout: *t\n")
    with pytest.raises(InputError, match=r"line 5: limits.timeout: is not a whole number"):
        read(path)
    path = written(tmp_path, "command: env\ntags:\n  <<: text\n")
    with pytest.raises(InputError, match=r"line 2: tags: cannot be merged"):
        read(path)


def test_aliases_that_multiply_cost_nothing(tmp_path: Path) -> None:
    lines = ["command: env", "properties:", "  a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert read(written(tmp_path, "\n".join(lines))).unused == ("properties",)


@pytest.mark.parametrize(
    ("content", "result"),
    [
        (b"command: \xff\n", "line 1: is not UTF-8; save it as UTF-8"),
        (b"\xef\xbb\xbfcommand:\n", "line 1: command: is empty"),
        (b"command: a\0b\n", "is not YAML"),
        (b"command: !!python/name:os.system ls\n", "line 1: command"),
        (b"command: 2026-99-99\n", "line 1: command = 2026-99-99: cannot be read"),
        (b"? [a]\n: b\ncommand: x\n", "line 1: key: is not a name"),
    ],
)
def test_text_that_yaml_chokes_on_is_an_error_like_any_other(
    tmp_path: Path, content: bytes, result: str
) -> None:
    path = tmp_path / "job.yml"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read(path)
    assert result in str(caught.value)


def test_no_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"file = '.*nix.yml': cannot be read \(No such file or directory\)"):
        read(tmp_path / "nix.yml")


def test_the_own_block(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "command: hostname\nranklift:\n  mpi: MPICH\n  mpirun_args: [-l, -n, 2]\n  nodes: 0-3,7\n"
        "  setup: module load mpi\n  python: /opt/envs/torch\n  chief: true\n  on_unhealthy: Replace\n",
    )
    assert read(path).own == Own(
        "mpich",
        ("-l", "-n", "2"),
        "0-3,7",
        "module load mpi",
        "/opt/envs/torch",
        chief=True,
        on_unhealthy="replace",
    )
    for text, result in (
        (
            "mpi: lam",
            r"line 3: ranklift.mpi = 'lam': is not a known value; use one of openmpi, mpich, intelmpi",
        ),
        ("mpirun_args: -l", r"line 3: ranklift.mpirun_args = '-l': is not a list"),
        ("on_unhealthy: drain", r"ranklift.on_unhealthy = 'drain': .*; use one of refuse, replace"),
        ("pyhton: x", r"did you mean python\?"),
        ("chief: 1", r"ranklift.chief = 1: is neither true nor false"),
    ):
        with pytest.raises(InputError, match=result):
            read(written(tmp_path, f"command: hostname\nranklift:\n  {text}\n"))


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("python3.11", "python3.11"),
        ("/opt/envs/torch", "/opt/envs/torch"),
        ("~/envs/torch", "~/envs/torch"),
        ("../envs/torch", "{parent}/envs/torch"),
        ("./venv/bin/python", "{here}/venv/bin/python"),
    ],
)
def test_a_relative_python_begins_at_the_job_file(tmp_path: Path, given: str, taken: str) -> None:
    path = written(tmp_path, f"command: env\nranklift: {{python: {given}}}\n")
    assert read(path).own.python == taken.format(parent=tmp_path.parent, here=tmp_path)


LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(
    lambda text: text.strip() and "${{" not in text and "$[[" not in text
)


@given(command=LINES, value=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
@settings(max_examples=200, deadline=None)
def test_every_character_of_a_line_and_of_a_value_arrives(
    tmp_path_factory: pytest.TempPathFactory, command: str, value: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yml"
    content = {"command": command, "inputs": {"x": value}, "environment_variables": {"X": value}}
    text = yaml.safe_dump(content, allow_unicode=True)
    assume(yaml.safe_load(text) == content)  # it writes U+0085, a line's end to YAML, as if it were a letter
    path.write_text(text, encoding="utf-8")
    job = read(path)
    assert (job.command, job.inputs["x"], job.env["X"]) == (command, value, value)


def test_set_puts_single_values_over_the_files(tmp_path: Path) -> None:
    path = FILES / "good" / "folded-command.yml"
    job = read(path, [("inputs.lr", "0.5"), ("resources.instance_count", "2"), ("tags.run", "x: [y")])
    assert job.inputs == {"lr": "0.5", "epochs": "3"}
    assert (job.instance_count, job.tags) == (2, {"run": "x: [y"})
    with pytest.raises(InputError, match=r"^--set limits.timeout: limits.timeout = 'soon': is not a whole"):
        read(path, [("limits.timeout", "soon")])
    with pytest.raises(InputError, match=r"^--set inputs.rl: .*did you mean|has no input|is no "):
        read(path, [("inputs.rl.x", "1")])
    with pytest.raises(InputError, match="leads through a value without keys"):
        read(path, [("command.x", "1")])
    shared = written(tmp_path, "command: env\nenvironment_variables: &e {A: b}\ntags: *e\n")
    changed = read(shared, [("tags.A", "c")])
    assert (changed.env, changed.tags) == ({"A": "b"}, {"A": "c"})


@pytest.mark.parametrize(
    ("key", "result"),
    [
        ("inputs.ephocs", "the file has no input ephocs, only epochs, lr; did you mean inputs.epochs?"),
        ("inputs.nope", "the file has no input nope, only epochs, lr; add nope under inputs: in the file"),
        ("outputs.model", "the file has no output model; add model under outputs: in the file"),
    ],
)
def test_set_changes_inputs_and_outputs_but_adds_none(tmp_path: Path, key: str, result: str) -> None:
    path = written(tmp_path, "command: env\ninputs: {lr: 0.1, epochs: 3}\n")
    with pytest.raises(InputError) as caught:
        read(path, [(key, "1")])
    assert str(caught.value) == f"--set {key} = '1': {result}"


def test_set_finds_merged_inputs_and_adds_variables(tmp_path: Path) -> None:
    path = written(tmp_path, "command: env\nproperties: &all {lr: 0.1}\ninputs: {<<: *all}\n")
    job = read(path, [("inputs.lr", "0.2"), ("environment_variables.A", "b")])
    assert (job.inputs, job.env) == ({"lr": "0.2"}, {"A": "b"})


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("command: |\n  cd src\n  ls ${{inputs.a\n", "line 3: command = '${{inputs.a'"),
        ("command: ls ${{inputs.a} ${{inputs.a}}\n", "line 1: command = '${{inputs.a}'"),
        ("command: ls\nenvironment_variables:\n  B: ${{inputs.a }\n", "line 3: environment_variables.B = "),
        ("command: ls\ninputs:\n  a: 1\n  b: x${{inputs.a\n", "line 4: inputs.b = '${{inputs.a'"),
    ],
)
def test_a_name_that_is_not_closed_is_refused_with_its_line(tmp_path: Path, text: str, result: str) -> None:
    path = written(tmp_path, text if "inputs:" in text else f"{text}inputs: {{a: 1}}\n")
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}, {result}")
    assert str(caught.value).endswith(": ${{ is not closed; close it with }}, as in ${{inputs.name}}")


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("type: pipeline\njobs: {a: {}}\nsettings: {}\n", "line 1: type = 'pipeline': is not a kind of job"),
        ("trial: {}\ntype: sweep\nobjective: {}\n", "line 2: type = 'sweep': is not a kind of job"),
        ("type: parallel\ntask: {}\n", "line 1: type = 'parallel': is not a kind of job"),
        ("jobs:\n  a: {}\nsettings: {}\n", "line 1: jobs: is a pipeline's; launch"),
        ("search_space: {}\ntrial: {}\n", "line 2: trial: is a sweep's; launch"),
        (
            "$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json\n"
            "type: command\nversion: 1\nis_deterministic: true\ncommand: ls\n",
            "line 1: $schema = 'https://azuremlschemas.azureedge.net/latest/commandComponent…': "
            "is a component's; launch",
        ),
    ],
)
def test_of_another_kind_of_file_nothing_but_that_is_told(tmp_path: Path, text: str, result: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}, {result}")
    assert len(str(caught.value).splitlines()) == 1


def test_a_job_may_take_a_year_and_no_more(tmp_path: Path) -> None:
    year = 365 * 24 * 3600
    assert read(written(tmp_path, f"command: ls\nlimits: {{timeout: {year}}}\n")).timeout_s == year
    with pytest.raises(InputError, match=rf"limits.timeout = {year + 1}: is more than 365 days; give "):
        read(written(tmp_path, f"command: ls\nlimits: {{timeout: {year + 1}}}\n"))


@pytest.mark.parametrize("command", ["[python, train.py]", "{run: train.py}"])
def test_a_command_that_is_not_one_string_is_refused_with_where_to_write_it(
    tmp_path: Path, command: str
) -> None:
    kind = "a list" if command.startswith("[") else "a mapping"
    with pytest.raises(
        InputError, match=rf"command: must be one string, not {kind}.*; write it after the colon"
    ):
        read(written(tmp_path, f"command: {command}\n"))


def test_a_path_with_file_before_it_is_one_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "iris.csv").write_text("1\n")
    inputs = "{a: {type: uri_file, path: file:./iris.csv}, b: {type: uri_folder, path: file:///mnt/data}}"
    job = read(written(tmp_path, f"command: ls\ncode: file:src\ninputs: {inputs}\n"))
    assert job.code == tmp_path / "src"
    found = [(one.local, one.remote) for one in job.inputs.values() if isinstance(one, Data)]
    assert found == [(tmp_path / "iris.csv", None), (None, "/mnt/data")]
