"""What is too long, too deep or too large is refused with file, line and limit, within 2 s of a processor."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.errors import InputError, InputErrors
from launch.job.spec import LONGEST, JobSpec
from launch.jobfile import JobFile, read, with_assets

LINUX_TAKES = f"Linux's limit is {LONGEST}"


@pytest.fixture(autouse=True)
def in_two_seconds() -> Iterator[None]:
    begun = time.process_time()
    yield
    assert time.process_time() - begun < 2


def job(tmp_path: Path, text: str) -> JobFile:
    (tmp_path / "job.yml").write_text(text)
    return read(tmp_path / "job.yml")


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(InputError) as error:
        job(tmp_path, text)
    assert len(str(error.value)) < 2000
    return str(error.value)


def test_a_command_longer_than_an_argument_is_refused_with_its_length_and_the_limit(tmp_path: Path) -> None:
    assert len(job(tmp_path, f"command: {'x' * LONGEST}").command) == LONGEST
    for unit in ("x", "a ", "echo a; ", "$A "):
        text = unit * (200_000 // len(unit))
        result = refusal(tmp_path, f"# first\ncommand: >-\n  {text}\n")
        assert f"job.yml, line 2: command = '{text[:60]}…': has " in result
        assert LINUX_TAKES in result


@pytest.mark.parametrize("unit", ["${{", "${{ inputs.x ", "${{ ", "}}${{", "${{inputs.x}}"])
def test_bindings_are_read_in_one_go(tmp_path: Path, unit: str) -> None:
    text = unit * (LONGEST // len(unit))
    result = refusal(tmp_path, f"command: '{text}'\ninputs: {{x: '{'y' * 1000}'}}\n")
    assert "job.yml, line 1: command = " in result
    assert ("would be" if unit.endswith("x}}") else "is not closed") in result


def test_inputs_that_hold_one_another_many_times_are_measured_first(tmp_path: Path) -> None:
    lines = ["command: echo ${{inputs.a30}}", "inputs:", "  a0: x"]
    lines += [f"  a{n}: '{f'${{{{inputs.a{n - 1}}}}}' * 10}'" for n in range(1, 31)]
    result = refusal(tmp_path, "\n".join(lines))
    assert "job.yml, line 9: inputs.a6" in result
    assert f"{LONGEST} bytes" in result


def test_inputs_in_a_long_row_are_refused_with_a_line(tmp_path: Path) -> None:
    lines = ["command: echo ${{inputs.a4000}}", "inputs:"]
    lines += [f"  a{n}: '${{{{inputs.a{n - 1}}}}}'" for n in range(4000, 0, -1)]
    result = refusal(tmp_path, "\n".join([*lines, "  a0: x"]))
    assert "job.yml, line 103: " in result
    assert "ends a chain of 100 inputs" in result


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("command: x\ntags: " + "[" * 5000 + "]" * 5000, 2),
        ("command: x\ntags: " + "{a: " * 5000 + "}" * 5000, 2),
        ("command: x\ntags:\n" + "".join(f"{' ' * n}a:\n" for n in range(1, 500)), 101),
        ("command: x\ntags:\n" + "- " * 5000, 3),
    ],
)
def test_a_file_nested_too_deep_is_refused_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    result = refusal(tmp_path, text)
    assert f"job.yml, line {line}: is not YAML (nested more than 100 levels deep)" in result


def test_merges_that_multiply_cost_nothing(tmp_path: Path) -> None:
    lines = ["command: env", "properties:", "  - &a0 {A: '1'}", "  - &b0 {B: '2'}"]
    for n in range(1, 90):
        both = ", ".join([f"*a{n - 1}, *b{n - 1}"] * 5)
        lines += [f"  - &a{n} {{<<: [{both}], A{n}: x}}", f"  - &b{n} {{<<: [{both}], B{n}: x}}"]
    lines += ["environment_variables:", "  <<: *a89"]
    lines[1] = "properties:\n  list:"
    env = job(tmp_path, "\n".join(lines)).env
    assert (env["A"], env["B"], env["A89"], len(env)) == ("1", "2", "x", 179)


def test_merges_in_a_long_row_and_in_a_circle_are_refused_with_a_line(tmp_path: Path) -> None:
    lines = ["command: env", "properties:", "  list:", "  - &a0 {A: '1'}"]
    lines += [f"  - &a{n} {{<<: *a{n - 1}}}" for n in range(1, 2000)]
    result = refusal(tmp_path, "\n".join([*lines, "environment_variables: {<<: *a1999}"]))
    assert f"line {len(lines) + 1}: environment_variables: merges more than 100 nested mappings" in result
    result = refusal(tmp_path, "command: env\ntags: &t\n  <<: *t\n")
    assert "line 2: tags: cannot be merged (it merges itself)" in result


def many(count: int, line: str) -> str:
    return "".join(f"  i{n}: {line}\n" for n in range(count))


@pytest.mark.parametrize("merged", [False, True])
def test_reading_ends_after_a_hundred_errors_however_often_aliases_repeat_them(
    tmp_path: Path, merged: bool
) -> None:
    keys = [f"k{n}: 1" for n in range(3000)]
    mapping = f"<<: [{', '.join(f'{{{key}}}' for key in keys)}]" if merged else ", ".join(keys)
    (tmp_path / "job.yml").write_text(
        f"command: env\nproperties:\n  b: &b {{{mapping}}}\ninputs:\n{many(3000, '*b')}"
    )
    with pytest.raises(InputErrors) as caught:
        read(tmp_path / "job.yml")
    assert len(caught.value.errors) == 101
    assert all("unknown key" in str(error) for error in caught.value.errors[:100])
    assert str(caught.value).endswith(
        ": is wrong too, and more may be: 100 errors are shown; correct those first"
    )


def test_a_file_that_merges_for_each_input_anew_is_read_in_one_go(tmp_path: Path) -> None:
    asked = ", ".join(f"{{k{n}: 1}}" for n in range(2000))
    text = f"command: env\nproperties:\n  b: &b {{<<: [{asked}, {{type: uri_folder, path: .}}]}}\n"
    text += f"inputs:\n{many(90, '{<<: *b}')}"
    with pytest.raises(InputErrors, match="unknown key"):
        job(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        f"properties: {{t: &t '{'x' * 100_000}'}}\nenvironment_variables:\n{many(5000, '*t')}",
        f"properties: {{t: &t '{'x' * 100_000}'}}\ntags:\n{many(5000, '*t')}",
        "environment:\n  conda_file:\n    dependencies:\n"
        f"    - &p {{pip: [{'numpy==1.26.4, ' * 4000}]}}\n" + "    - *p\n" * 5000,
        f"properties: {{b: &b {{{', '.join(f'k{n}' for n in range(3000))}}}}}\n"
        f"environment_variables: {{<<: [{'{<<: *b}, ' * 4000}]}}",
    ],
    ids=["variables", "tags", "packages", "merges"],
)
def test_what_aliases_repeat_is_counted_and_refused_above_a_limit(tmp_path: Path, text: str) -> None:
    result = refusal(tmp_path, f"command: env\n{text}\n")
    assert "has more than 1048576 characters with its aliases and merges written out" in result


def test_a_full_file_without_aliases_is_read(tmp_path: Path) -> None:
    assert len(job(tmp_path, f"command: env\nenvironment_variables:\n{many(9000, 'x')}").env) == 9000


def test_variables_that_are_filled_with_one_input_are_measured_together(tmp_path: Path) -> None:
    text = f"command: env\ninputs: {{x: '{'x' * 100_000}'}}\nenvironment_variables:\n"
    result = refusal(tmp_path, text + many(5000, "${{inputs.x}}"))
    assert "job.yml, line 45: environment_variables.i41 = " in result
    assert "makes the variables longer than 4 MiB in all" in result


def test_a_table_and_an_asset_are_read_once_for_many_inputs(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/MLTable").write_text("paths:\n" + "- file: a.csv\n" * 500)
    tables = job(tmp_path, f"command: env\ninputs:\n{many(300, '{type: mltable, path: data}')}")
    assert len(tables.inputs) == 300
    tags = "".join(f"  t{n}: x\n" for n in range(1000))
    (tmp_path / "data/iris.yml").write_text(f"name: iris\nversion: 1\npath: .\ntags:\n{tags}")
    wanted = job(tmp_path, f"command: env\ninputs:\n{many(300, '{path: azureml:iris:1}')}")
    assert len(with_assets(wanted, [tmp_path]).inputs) == 300


@pytest.mark.parametrize("name", ["iris", "iris{0}"], ids=["versions", "names"])
def test_folders_are_listed_and_assets_read_once_for_inputs_that_each_name_another(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "data").mkdir()
    path = "azureml://datastores/d/paths/x"
    for n in range(300):
        text = f"name: {name}\nversion: '{{0}}'\npath: {path}\n".format(n)
        (tmp_path / f"data/{n}.yml").write_text(text)
    inputs = "".join(f"  i{n}: {{path: azureml:{name.format(n)}:{n}}}\n" for n in range(300))
    wanted = job(tmp_path, f"command: env\ninputs:\n{inputs}")
    assert len(with_assets(wanted, [tmp_path]).inputs) == 300


def test_a_file_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    result = refusal(tmp_path, "command: x\n#" + "x" * 10_000_000)
    assert result.startswith(f"file = '{tmp_path}/job.yml': is larger than 262144 bytes; ")


@pytest.mark.parametrize(
    "number", ["9" * 100_000, "0x" + "f" * 100_000, "1:" * 50_000 + "1", "1." + "0" * 10_000]
)
def test_a_number_of_endless_length_is_refused_with_its_line(tmp_path: Path, number: str) -> None:
    result = refusal(tmp_path, f"command: x\ninputs:\n  a: {number}\n")
    assert "job.yml, line 3: inputs.a = " in result
    assert "is too long for a number or a date" in result


def test_all_that_a_rank_is_given_has_room_in_one_exec() -> None:
    values = {f"A{n}": "x" * 100_000 for n in range(20)}
    with pytest.raises(InputError, match=r"environment: have 20\d+ bytes with the command; Linux"):
        JobSpec(name="t", kind="pytorch", command=("train.py",), env=values)
    JobSpec(name="t", kind="pytorch", command=("train.py",), env=dict(list(values.items())[:15]))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("name: !!bool maybe", "name = maybe: cannot be read ("),
        ("name: !!timestamp x", "name = x: cannot be read ("),
        ("name: !!int ''", "name = : cannot be read ("),
        ("name: !!float x", "name = x: cannot be read ("),
        ("name: 2026-01-01T00:00:00+99:99", "name = 2026-01-01T00:00:00+99:99: "),
        (f"code: {'x' * 3000}", "is not a path (File name too long)"),
        ("code: ~nosuchuser/x", "is not a path ("),
        ('code: "a\\0b"', "does not exist"),
        (f"inputs: {{x: {{type: uri_file, path: {'x' * 3000}}}}}", "is not a path (File name too long)"),
        ('inputs: {x: {type: uri_file, path: "~nosuchuser/x"}}', "is not a path ("),
    ],
)
def test_what_no_reader_can_take_is_refused_with_its_line(tmp_path: Path, line: str, expected: str) -> None:
    result = refusal(tmp_path, f"command: env\n{line}\n")
    assert "job.yml, line 2: " in result
    assert expected in result


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "job.yml")
    with pytest.raises(InputError, match="is a pipe; name a job file"):
        read(tmp_path / "job.yml")
