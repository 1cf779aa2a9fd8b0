"""Every number that users may write has a bound, which is looked at before anything is made of that size."""

from __future__ import annotations

import inspect
import json
import resource
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

from infra.config.schema import parse
from infra.inventory import INVENTORY_FILE, Inventory, Node
from launch.errors import InputError
from launch.job.spec import JobSpec
from launch.jobfile import read
from playbooks import ns
from tests.playbooks.typed import arguments, write_project

HUGE = "99999999999"
ENDLESS = "9" * 100_000
RANGE = f"0-{HUGE}"
DAYS = "is more than 365 days"
NO_NODE = f"{HUGE} is above 2176782335, and no node has such a number"

OPTIONS: dict[str, list[tuple[str, str]]] = {
    "nodes": [(RANGE, NO_NODE), ("0-99999,0-99999", "names more than 100000 numbers"), (ENDLESS, "is above")],
    "node": [(RANGE, NO_NODE), ("0-99999,0-99999", "names more than 100000 numbers")],
    "rank": [(RANGE, NO_NODE), ("0-100000", "names more than 100000 numbers")],
    "nproc_per_node": [
        (HUGE, "--nproc-per-node = 99999999999: must be at most 1000000"),
        (ENDLESS, "at most"),
    ],
    "nnodes": [
        (HUGE, "--nnodes = 99999999999: must be at most 1000000"),
        (f"2:{HUGE}", "is not a range of nodes"),
        (ENDLESS, "must be at most 1000000"),
    ],
    "workers": [(HUGE, "--workers = 99999999999: must be at most 1000000")],
    "parameter_servers": [("1001", "--parameter-servers = 1001: must be at most 1000"), (ENDLESS, "at most")],
    "max_restarts": [(HUGE, "--max-restarts = 99999999999: must be at most 1000000"), (ENDLESS, "at most")],
    "timeout": [("9000h", DAYS), (HUGE, DAYS), (ENDLESS, "is not a duration")],
    "hang_after": [("9000h", DAYS), (ENDLESS, "is not a duration")],
    "repeat": [(HUGE, "--repeat = 99999999999: must be at most"), (ENDLESS, "at most")],
    "warm_up": [(HUGE, "--warm-up = 99999999999: must be at most"), (ENDLESS, "at most")],
    "port": [(HUGE, "--port = 99999999999: must be at most 65535"), (ENDLESS, "at most")],
    "grace": [("9000h", DAYS), (ENDLESS, "is not a duration")],
    "since": [("9000h", DAYS), (ENDLESS, "is not a duration")],
    "tail": [(HUGE, "--tail = 99999999999: must be at most 1000000"), (ENDLESS, "at most")],
    "last": [(HUGE, "--last = 99999999999: must be at most 1000000"), (ENDLESS, "at most")],
    "fanout": [(HUGE, "--fanout = 99999999999: must be at most 1000000"), (ENDLESS, "at most")],
    "number": [(HUGE, "number = 99999999999: must be at most 1000000"), (ENDLESS, "at most")],
    "nodes_limit": [("1001", "--nodes-limit = 1001: must be at most 1000"), (ENDLESS, "at most")],
    "after": [(HUGE, "--after = 99999999999: must be at most 1000000")],
    "count": [(HUGE, "--count = 99999999999: must be at most 1000000")],
    "seconds": [(HUGE, DAYS), (f"-{HUGE}", DAYS)],
    "rate": [(HUGE, "--rate = 99999999999: must be at most 1000000")],
    "device": [(HUGE, "--device = 99999999999: must be at most 1000000"), (ENDLESS, "at most")],
    "code": [(HUGE, "--code = 99999999999: must be at most 1000000")],
}
"""By option: values that are too large, and the problem in their errors."""

TEXTS = {
    *("stack", "job", "into", "line", "file", "env", "set", "name", "mpi", "mpirun_args", "source", "python"),
    *("rdzv_backend", "grep", "kind", "node_python", "requirements", "conda", "image", "environment"),
    *(
        "find_links",
        "runtime",
        "registry_token",
        "environment_id",
        "fill",
        "allow_path",
        "reason",
        "words",
        "folder",
        "match",
        "tag",
    ),
    *(
        "path",
        "target",
        "container",
        "input",
        "sas_file",
        "stage",
        "health",
        "on_unhealthy",
        "by",
        "svg",
        "state",
        "counter",
        "metric",
        "of",
        "output",
        "collected",
    ),
}
"""Options that take no number."""

OTHERS: dict[tuple[str, str], list[tuple[str, str]]] = {
    ("scaling", "nodes"): [(HUGE, "--nodes = 99999999999: must be at most"), (ENDLESS, "at most")],
    ("plan", "nodes"): [(HUGE, "--nodes = 99999999999: must be at most 1000000"), (ENDLESS, "at most")],
}
"""Tasks in which an option of that name means something else."""

BESIDE: dict[str, dict[str, Any]] = {
    "launch.file": {"file": "job.yml"},
    "launch.mpi": {"line": "train.py"},
    "launch.torch": {"line": "train.py", "torchrun": True, "rdzv_backend": "c10d"},
    "launch.tensorflow": {"line": "train.py"},
    "exec": {"line": "id"},
    "rehearsal.fault": {"kind": ["throttle"]},
    **{task: {"job": "t-1"} for task in ("cancel", "collect", "job", "logs")},
    "scale": {"number": "2"},
    "replace": {"node": ["0"]},
    "image.build": {"stack": "gpu-images"},
    "data.stage": {"path": "set"},
    "scaling": {"file": "job.yml"},
}


def rows() -> Iterator[Any]:
    for task in sorted(ns.task_names):
        for argument in arguments(task):
            if argument.kind is bool or argument.name in TEXTS:
                continue
            for value, expected in OTHERS.get((task, argument.name)) or OPTIONS[argument.name]:
                name = f"{task}-{argument.name}-{value if len(value) < 40 else 'endless'}"
                yield pytest.param(task, argument.name, value, expected, id=name)


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Of what is asked for in vain no more than half a GB is made."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**29, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder beside a project whose stack ``dev`` has two nodes of 8 slots."""
    project, own = tmp_path / "ranklift", tmp_path / "own"
    stack = project / ".ranklift" / "dev"
    stack.mkdir(parents=True)
    own.mkdir()
    write_project(project, "dev")
    nodes = tuple(
        Node(f"node{n:06x}", n, f"10.0.0.{n + 4}", "127.0.0.1", 50000 + n, 8, "running") for n in range(2)
    )
    saved = Inventory("dev", "Standard_ND40rs_v2", "southcentralus", "azureuser", nodes, 0.0)
    (stack / INVENTORY_FILE).write_text(json.dumps(asdict(saved)))
    (own / "train.py").write_text("print('hi')\n")
    (own / "job.yml").write_text("command: python train.py\ncode: .\ndistribution: {type: pytorch}\n")
    monkeypatch.chdir(own)
    monkeypatch.setenv("RANKLIFT_PROJECT", str(project))
    monkeypatch.setenv("RANKLIFT_STACK", "dev")
    return own


@pytest.mark.usefixtures("little_memory", "workplace")
@pytest.mark.parametrize(("task", "option", "value", "expected"), list(rows()))
def test_an_option_refuses_what_is_too_large_at_once(
    capsys: pytest.CaptureFixture[str], task: str, option: str, value: str, expected: str
) -> None:
    begun = time.process_time()
    given = [value] if option in ns[task].iterable else value
    arguments = {**BESIDE.get(task, {}), option: given}
    if "dry_run" in inspect.signature(ns[task].body).parameters:
        arguments["dry_run"] = True
    with pytest.raises(Exit) as ended:
        ns[task].body(Context(), **arguments)
    ran = capsys.readouterr()
    assert (ended.value.code, ran.out) == (2, "")
    assert expected in ran.err
    assert len(ran.err) < 2000
    assert time.process_time() - begun < 2


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (f"resources: {{instance_count: {HUGE}}}", f"instance_count = {HUGE}: must be at most 1000000"),
        ("resources: {instance_count: 0x" + "f" * 99 + "}", "instance_count = 0x"),
        (f"resources: {{instance_count: '{ENDLESS}'}}", "must be at most 1000000"),
        (f"resources: {{shm_size: {HUGE}g}}", f"shm_size = '{HUGE}g': is more memory than any machine has"),
        (f"resources: {{shm_size: {ENDLESS}g}}", "is not a size"),
        (
            f"distribution: {{type: mpi, process_count_per_instance: {HUGE}}}",
            f"process_count_per_instance = {HUGE}: must be at most 1000000",
        ),
        (
            f"distribution: {{type: tensorflow, worker_count: {HUGE}}}",
            f"worker_count = {HUGE}: must be at most 1000000",
        ),
        (
            "distribution: {type: tensorflow, worker_count: 1, parameter_server_count: 1001}",
            "parameter_server_count = 1001: must be at most 1000",
        ),
        (f"limits: {{timeout: {HUGE}}}", f"timeout = {HUGE}: is more than 365 days"),
        (f"limits: {{timeout: '{ENDLESS}'}}", "is more than 365 days"),
        (f"ranklift: {{max_restarts: {HUGE}}}", f"max_restarts = {HUGE}: must be at most 1000000"),
        ("ranklift: {grace: 9000h}", "grace = '9000h': is more than 365 days"),
        (f"ranklift: {{grace: '{ENDLESS}'}}", "is not a duration"),
    ],
)
def test_a_job_file_is_refused_with_the_line_of_what_is_too_large(
    tmp_path: Path, lines: str, expected: str
) -> None:
    begun = time.process_time()
    (tmp_path / "job.yml").write_text(f"command: echo hi\n{lines}\n")
    with pytest.raises(InputError) as error:
        read(tmp_path / "job.yml")
    assert f"{tmp_path}/job.yml, line 2: " in str(error.value)
    assert expected in str(error.value)
    assert len(str(error.value)) < 1000
    assert time.process_time() - begun < 2


@pytest.mark.usefixtures("little_memory")
def test_nodes_of_a_job_file_are_bounded_with_its_line(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "job.yml").write_text(f"command: echo hi\nranklift:\n  nodes: {RANGE}\n")
    with pytest.raises(Exit):
        ns["launch.file"].body(Context(), file="job.yml", dry_run=True)
    ran = capsys.readouterr().err
    assert "job.yml, line 3: " in ran
    assert NO_NODE in ran


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"port": 65536}, "is not a TCP port"),
        ({"timeout_s": float("inf")}, DAYS),
        ({"timeout_s": float("nan")}, DAYS),
        ({"grace_s": 1e10}, DAYS),
        ({"max_restarts": 10**7}, "is not a number of restarts"),
        ({"kind": "tensorflow", "workers": 10**10}, "must be at most 1000000"),
        ({"kind": "tensorflow", "workers": 1, "parameter_servers": 10**10}, "is not a number of tasks"),
    ],
)
def test_a_job_made_by_a_program_is_bounded_alike(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        JobSpec(**{"name": "t", "kind": "pytorch", "command": ("train.py",), **values})


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("nodeCount", "is more than the 300 nodes"),
        ("idleStopMinutes", "is more than a year"),
        ("ttlHours", "is more than ten years"),
        ("maxPrice", "is more than 1000000 USD per hour"),
        ("nfsSizeGib", "is not a size that Azure sells"),
        ("zone", "is not an availability zone"),
    ],
)
def test_a_setting_of_a_stack_is_bounded(key: str, expected: str) -> None:
    given = {
        "vmSize": "Standard_ND40rs_v2",
        "nodeCount": "4",
        "location": "southcentralus",
        "sshFrom": "203.0.113.7",
        "nfs": "files",
    }
    for value in (HUGE, "9" * 30):
        with pytest.raises(InputError, match=expected):
            parse({f"ranklift:{name}": text for name, text in {**given, key: value}.items()})


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("path", ["x" * 3000, "~nosuchuser/x"])
def test_a_path_that_cannot_be_one_is_refused(capsys: pytest.CaptureFixture[str], path: str) -> None:
    for task, given in (("push", {"source": path}), ("launch.file", {"file": path})):
        with pytest.raises(Exit) as ended:
            ns[task].body(Context(), dry_run=True, **given)
        ran = capsys.readouterr()
        assert (ended.value.code, ran.out) == (2, "")
        assert ran.err.startswith("error: ")
