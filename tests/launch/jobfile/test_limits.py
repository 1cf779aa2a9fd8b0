"""What is too long, too deep or too large is refused with file, line and limit, within 2 s of a processor."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.errors import InputError
from launch.job.spec import LONGEST, JobSpec
from launch.jobfile import JobFile, read

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
