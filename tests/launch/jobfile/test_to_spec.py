"""From a job file to a job: names filled in, processes counted, options over the file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from launch.errors import InputError
from launch.job.spec import HEALTH
from launch.jobfile import Flags, Made, Pushed, make, name_of, node_count, read

HOME = "/home/azureuser"
LIGHTNING = "import lightning\n"


def made(
    tmp_path: Path,
    text: str,
    *,
    nodes: int = 1,
    source: str | None = None,
    flags: Flags | None = None,
    paths: dict[str, str] | None = None,
    files: tuple[str, ...] = ("train.py",),
) -> Made:
    (tmp_path / "src").mkdir(exist_ok=True)
    (tmp_path / "table.csv").touch()
    path = tmp_path / "job.yml"
    path.write_text(text)
    return make(
        read(path),
        nodes=nodes,
        identifier="digits-20260301-090507-0f3a",
        home=HOME,
        pushed=Pushed("0123", files, paths or {}),
        source=source,
        flags=flags,
    )


def test_names_are_replaced_as_text_and_nothing_is_quoted(tmp_path: Path) -> None:
    job = made(
        tmp_path,
        "command: python train.py ${{inputs.flags}} --in ${{ inputs.table }} --out '${{outputs.model}}'\n"
        "code: src\n"
        'inputs:\n  flags: --a "b c" $HOME\n  table: {type: uri_file, path: table.csv}\n'
        "outputs: {model: }\n"
        "environment_variables: {OUT: '${{outputs.model}}/x'}\n",
        paths={"table": "/data/table.csv"},
    ).spec
    out = f"{HOME}/.ranklift/jobs/digits-20260301-090507-0f3a/work/outputs/model"
    assert job.command == (f"python train.py --a \"b c\" $HOME --in /data/table.csv --out '{out}'",)
    assert job.shell
    assert job.env == {"OUT": f"{out}/x"}
    assert job.outputs == {"model": "uri_folder"}


def test_what_comes_in_for_a_name_is_not_looked_at_again(tmp_path: Path) -> None:
    text = "command: echo ${{inputs.a}}\ninputs: {a: {path: table.csv, type: uri_file}}\n"
    assert made(tmp_path, text, paths={"a": "${{inputs.b}}"}).spec.command == ("echo ${{inputs.b}}",)


def test_everything_arrives_in_the_job(tmp_path: Path) -> None:
    job = made(
        tmp_path,
        "command: python train.py\ncode: src\nname: one\ndisplay_name: Two\nexperiment_name: three\n"
        "description: four\ntags: {a: b}\ndistribution: {type: mpi, process_count_per_instance: 2}\n"
        "resources: {shm_size: 2g}\nlimits: {timeout: 60}\n"
        "ranklift: {mpi: openmpi, mpirun_args: [--display-map], setup: 'true', python: /opt/env}\n",
        source="import torch\n",
    ).spec
    assert (job.name, job.display_name, job.experiment, job.description) == ("one", "Two", "three", "four")
    assert (job.kind, job.processes_per_node, job.mpi, job.mpi_args) == (
        *("mpi", 2, "openmpi", ("--display-map",)),
    )
    assert (job.shm_bytes, job.timeout_s, job.setup, job.python) == (2 << 30, 60, "true", "/opt/env")
    assert (job.tags, job.snapshot, job.requires, job.home) == ({"a": "b"}, "0123", ("torch",), HOME)


def test_what_a_line_installs_first_is_not_required(tmp_path: Path) -> None:
    line = "command: pip install -r requirements.txt && python train.py\ncode: src\n"
    assert made(tmp_path, line, source="import torch\n").spec.requires == ()


def test_one_node_needs_no_distribution_and_several_are_refused_without(tmp_path: Path) -> None:
    job = made(tmp_path, "command: hostname\n").spec
    assert (job.kind, job.per_node) == ("pytorch", True)
    with pytest.raises(InputError, match=r"job.yml, line 3: resources.instance_count = 3: 3 nodes without"):
        made(tmp_path, "command: hostname\nresources:\n  instance_count: 3\n", nodes=3)
    with pytest.raises(InputError, match=r"job.yml: 2 nodes without a distribution would each do the same"):
        made(tmp_path, "command: hostname\n", nodes=2)
    with pytest.raises(InputError, match=r"--nproc-per-node = 2: .*job.yml has no distribution"):
        made(tmp_path, "command: hostname\n", flags=Flags(processes=2))


PYTORCH = "command: {}\ncode: src\ndistribution:\n  type: pytorch\n"


@pytest.mark.parametrize(
    ("command", "count", "source", "flag", "per_node", "processes"),
    [
        ("python train.py", None, "", None, False, 1),
        ("python train.py", None, LIGHTNING, None, True, None),
        ("python train.py", 1, LIGHTNING, None, False, 1),
        ("python train.py", 2, LIGHTNING, None, False, 2),
        ("torchrun train.py", None, "", None, True, None),
        ("torchrun train.py", 1, "", None, True, None),
        ("python train.py", 2, "", 4, False, 4),
        ("python train.py", 2, "", "auto", False, None),
    ],
)
def test_who_starts_how_many_processes(
    tmp_path: Path,
    command: str,
    count: int | None,
    source: str,
    flag: int | None,
    per_node: bool,
    processes: int | None,
) -> None:
    text = PYTORCH.format(command) + (f"  process_count_per_instance: {count}\n" if count else "")
    done = made(tmp_path, text, nodes=2, source=source, flags=Flags(processes=flag))
    assert (done.spec.per_node, done.spec.processes_per_node) == (per_node, processes)
    assert bool(done.notices) == (per_node or (count is None and flag is None)), "a choice is told"


def test_a_launcher_together_with_a_count_is_refused(tmp_path: Path) -> None:
    for command in (
        "torchrun --nproc-per-node 2 train.py",
        "python -m torch.distributed.launch --use_env train.py",
        "accelerate launch train.py",
        "conda run -n x torchrun train.py",
    ):
        text = PYTORCH.format(command) + "  process_count_per_instance: 2\n"
        with pytest.raises(
            InputError, match=r"line 5: distribution.process_count_per_instance = 2: cannot be combined"
        ):
            made(tmp_path, text, nodes=2)
        with pytest.raises(InputError, match=r"^--nproc-per-node = 2: cannot be combined with this command"):
            made(tmp_path, PYTORCH.format(command), nodes=2, flags=Flags(processes=2))
        mpi = PYTORCH.format(command).replace("pytorch", "mpi") + "  process_count_per_instance: 2\n"
        with pytest.raises(InputError, match="cannot be combined with this command"):
            made(tmp_path, mpi, nodes=2)


def test_a_torchrun_is_given_the_jobs_nodes_and_that_is_told(tmp_path: Path) -> None:
    done = made(tmp_path, PYTORCH.format("torchrun --nproc_per_node 2 train.py"), nodes=2)
    added = "--nnodes 2 --node-rank $NODE_RANK --master-addr $MASTER_ADDR --master-port $MASTER_PORT"
    assert done.spec.command == (f"torchrun {added} --nproc_per_node 2 train.py",)
    assert done.spec.per_node
    started, notice = done.notices
    assert started.startswith("one process on each node: torchrun starts")
    assert notice.startswith(f"torchrun: added {added}: ")
    one = made(tmp_path, PYTORCH.format("torchrun --nproc_per_node 2 train.py"))
    assert one.spec.command == ("torchrun --nproc_per_node 2 train.py",)


def test_a_command_that_contradicts_the_nodes_is_refused_with_its_line(tmp_path: Path) -> None:
    command = ">-\n  cd . &&\n  torchrun --nproc_per_node 2\n  --nnodes 4 train.py"
    with pytest.raises(InputError, match=r"job.yml, line 4: command = '--nnodes 4': the job has 2 nodes; wr"):
        made(tmp_path, PYTORCH.format(command), nodes=2)
    with pytest.raises(InputError, match=r"job.yml, line 1: command = 'deepspeed': deepspeed goes to other"):
        made(tmp_path, PYTORCH.format("deepspeed train.py"), nodes=2)
    text = "command: torchrun --nnodes ${{inputs.n}} a.py\ninputs: {n: 2}\n"
    with pytest.raises(InputError, match=r"line 1: command = '--nnodes': the job has 1 node"):
        made(tmp_path, text, files=("a.py",))
    mpi = PYTORCH.format("mpirun -np 2 hostname").replace("pytorch", "mpi")
    with pytest.raises(InputError, match=r"line 1: command = 'mpirun': mpirun starts the ranks of this job"):
        made(tmp_path, mpi)


def test_tensorflow(tmp_path: Path) -> None:
    text = "command: hostname\ndistribution: {type: tensorflow, worker_count: 2, parameter_server_count: 1}\n"
    job = made(tmp_path, f"{text}ranklift: {{chief: true}}\n", nodes=2).spec
    assert (job.kind, job.workers, job.parameter_servers, job.chief) == ("tensorflow", 2, 1, True)
    with pytest.raises(InputError, match=r"^--nproc-per-node = 2: is not for tensorflow jobs"):
        made(tmp_path, text, nodes=2, flags=Flags(processes=2))
    with pytest.raises(InputError, match=r"job.yml, line 4: ranklift.chief = True: is for tensorflow jobs"):
        made(tmp_path, "command: hostname\ndistribution: {type: mpi}\nranklift:\n  chief: true\n")


def test_every_node_needs_a_tensorflow_task(tmp_path: Path) -> None:
    text = "command: hostname\ndistribution:\n  type: tensorflow\n  worker_count: 2\n"
    with pytest.raises(InputError) as caught:
        made(tmp_path, f"{text}resources:\n  instance_count: 4\n", nodes=4)
    assert str(caught.value).endswith(
        "job.yml, line 4: distribution.worker_count = 2: makes 2 tasks for 4 nodes; make worker_count at "
        "least 4, or resources.instance_count (job.yml, line 6) at most 2".replace(
            "(job.yml", f"({tmp_path}/job.yml"
        )
    )
    with pytest.raises(InputError, match="3 nodes; make worker_count at least 3, or choose at most 2 nodes"):
        made(tmp_path, text, nodes=3)
    assert made(tmp_path, f"{text}  parameter_server_count: 2\n", nodes=4).spec.workers == 2


def test_options_win_over_the_file(tmp_path: Path) -> None:
    text = "command: hostname\nname: a\nenvironment_variables: {A: file, B: file}\nlimits: {timeout: 60}\n"
    job = made(tmp_path, text, flags=Flags(env={"B": "flag", "C": "flag"}, name="b", timeout_s=5)).spec
    assert job.env == {"A": "file", "B": "flag", "C": "flag"}
    assert (job.name, job.timeout_s) == ("b", 5)


def test_the_flight_recorder_is_on_unless_the_file_or_an_option_switches_it_off(tmp_path: Path) -> None:
    text = "command: hostname\n"
    off = f"{text}ranklift: {{flight_recorder: false}}\n"
    assert made(tmp_path, text).spec.flight_recorder
    assert not made(tmp_path, off).spec.flight_recorder
    assert not made(tmp_path, text, flags=Flags(flight_recorder=False)).spec.flight_recorder
    with pytest.raises(InputError, match=r"line 2: ranklift\.flight_recorder = "):
        made(tmp_path, f"{text}ranklift: {{flight_recorder: maybe}}\n")


def test_the_identity_is_used_only_where_the_user_says_so_and_not_the_file_alone(tmp_path: Path) -> None:
    text = "command: hostname\n"
    used = f"{text}ranklift: {{identity: true}}\n"
    assert not made(tmp_path, text).spec.identity
    for one in (text, used):
        assert made(tmp_path, one, flags=Flags(identity=True)).spec.identity
    with pytest.raises(
        InputError, match=r"line 2: ranklift\.identity = true: is not for .*; give --identity"
    ):
        made(tmp_path, used)
    with pytest.raises(InputError, match=r"line 2: ranklift\.identity = "):
        made(tmp_path, f"{text}ranklift: {{identity: maybe}}\n")
    with pytest.raises(InputError, match=r"line 2: ranklift\.max_restarts = 2: .*grants it to one launch"):
        made(tmp_path, f"{text}ranklift: {{identity: true, max_restarts: 2}}\n", flags=Flags(identity=True))


def test_the_probe_is_the_options_then_the_files_then_the_heads_own_choice(tmp_path: Path) -> None:
    text = "command: python train.py\ncode: src\n"
    assert made(tmp_path, text).spec.probe is None
    for value, flag, expected in (("true", None, True), ("false", None, False), ("true", False, False)):
        file = f"{text}ranklift: {{probe: {value}}}\n"
        assert made(tmp_path, file, flags=Flags(probe=flag)).spec.probe is expected
    with pytest.raises(InputError, match=r"line 3: ranklift\.probe = "):
        made(tmp_path, f"{text}ranklift: {{probe: maybe}}\n")


def test_restarts_and_the_grace(tmp_path: Path) -> None:
    text = "command: python train.py\ncode: src\n"
    own = "ranklift: {max_restarts: 3, grace: 2m}\n"
    job = made(tmp_path, text + own).spec
    assert (job.max_restarts, job.grace_s, job.min_nodes) == (3, 120, None)
    job = made(tmp_path, text + own, flags=Flags(max_restarts=0, grace_s=5)).spec
    assert (job.max_restarts, job.grace_s) == (0, 5)
    job = made(tmp_path, text).spec
    assert (job.max_restarts, job.grace_s) == (0, 3)
    for wrong in ("max_restarts: -1", "max_restarts: often", "grace: soon", "grace: 0"):
        with pytest.raises(InputError, match=rf"line 3: ranklift\.{wrong.partition(':')[0]} = "):
            made(tmp_path, f"{text}ranklift: {{{wrong}}}\n")


@pytest.mark.parametrize("mode", ["off", "warn", "strict"])
def test_health_is_the_options_else_the_files(tmp_path: Path, mode: str) -> None:
    text = "command: python train.py\n"
    assert made(tmp_path, text + f"ranklift: {{health: {mode}}}\n").spec.health == mode
    assert (
        made(tmp_path, text + f"ranklift: {{health: {mode}}}\n", flags=Flags(health="warn")).spec.health
        == "warn"
    )
    assert made(tmp_path, text).spec.health == HEALTH


def test_another_health_is_refused_by_line(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"line 2: ranklift\.health = .*is not a mode; use one of off, warn, strict"
    ):
        made(tmp_path, "command: python train.py\nranklift: {health: lax}\n")


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [
        ("{psnr: x}", r"line 3: ranklift\.metrics\.psnr = 'x': has 0 groups"),
        ("{psnr: '(x'}", r"line 3: ranklift\.metrics\.psnr = '\(x': is not a pattern"),
        ("{psnr: 3}", r"line 3: ranklift\.metrics\.psnr = '?3'?: is not a string"),
        ("{PSNR: (x)}", r"line 3: ranklift\.metrics\.PSNR: is not a valid name for a metric"),
        ("{p-r: (x)}", r"line 3: ranklift\.metrics\.p-r .*is not a valid name for a metric"),
        ("[x]", r"line 3: ranklift\.metrics"),
    ],
)
def test_a_wrong_metric_is_refused_with_its_line(tmp_path: Path, metrics: str, reason: str) -> None:
    text = f"command: hostname\nranklift:\n  metrics: {metrics}\n"
    with pytest.raises(InputError, match=reason):
        made(tmp_path, text)


def test_a_range_of_nodes_is_seen_and_restarts_are_torchruns(tmp_path: Path) -> None:
    text = (
        "command: torchrun --nnodes 2:4 train.py\ncode: src\n"
        "distribution: {type: pytorch}\nresources: {instance_count: 4}\n"
    )
    assert made(tmp_path, text, nodes=4).spec.min_nodes == 2
    with pytest.raises(InputError, match=r"line 5: ranklift\.max_restarts = 3: .*--max-restarts 3"):
        made(tmp_path, text + "ranklift: {max_restarts: 3}\n", nodes=4)
    with pytest.raises(InputError, match=r"^--max-restarts = 2: "):
        made(tmp_path, text, nodes=4, flags=Flags(max_restarts=2))


def test_what_only_the_job_refuses_is_told_with_the_files_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"job.yml, line 3: environment_variables.RANK: is set by the"):
        made(tmp_path, "command: hostname\nenvironment_variables:\n  RANK: 0\n")
    with pytest.raises(InputError, match=r"^--env RANK: is set by the launcher"):
        made(tmp_path, "command: hostname\n", flags=Flags(env={"RANK": "0"}))
    with pytest.raises(InputError, match=r"job.yml, line 3: ranklift.mpi = 'mpich': is for mpi jobs"):
        made(tmp_path, "command: hostname\nranklift:\n  mpi: mpich\n")


def test_all_variables_that_the_launcher_sets_are_told_together(tmp_path: Path) -> None:
    text = "command: hostname\nenvironment_variables:\n  RANK: 0\n  A: b\n  NODE_RANK: 0\n"
    with pytest.raises(InputError) as caught:
        made(tmp_path, text, flags=Flags(env={"WORLD_SIZE": "1"}))
    lines = [
        line.replace(f"{tmp_path}/", "").partition(": is set by")[0]
        for line in str(caught.value).splitlines()
    ]
    first = "job.yml, line 3: environment_variables.RANK"
    assert lines == [first, "job.yml, line 5: environment_variables.NODE_RANK", "--env WORLD_SIZE"]


def test_a_missing_script_is_found_before_anything_is_pushed(tmp_path: Path) -> None:
    text = "command: >-\n  pip install x &&\n  python nope.py\ncode: src\n"
    with pytest.raises(InputError) as caught:
        made(tmp_path, text)
    assert str(caught.value) == (
        f"{tmp_path}/job.yml, line 3: command = 'nope.py': runs nope.py, which is not in the code "
        f"({tmp_path}/job.yml, line 4); give its path from that folder, and see .gitignore"
    )
    with pytest.raises(InputError, match=r"runs train.py, but no code is pushed; add code:"):
        made(tmp_path, "command: python train.py\n", files=())


@pytest.mark.parametrize("line", ["bash -lc 'python train.py'", "conda_hook.py a", "python link/train.py"])
def test_a_script_that_cannot_be_known_is_not_missed(tmp_path: Path, line: str) -> None:
    text = f"command: {line}\ncode: .\n"
    made(tmp_path, text, files=("link",))


def test_a_script_that_the_setup_line_may_make_is_not_missed(tmp_path: Path) -> None:
    made(tmp_path, "command: python made.py\ncode: .\nranklift: {setup: touch made.py}\n")


def test_the_jobs_name_is_the_nearest_that_is_given(tmp_path: Path) -> None:
    path = tmp_path / "digits.yml"
    for text, name in (
        ("command: hostname\n", "digits"),
        ("command: python train.py\n", "train"),
        ("command: python train.py\ndisplay_name: shown\n", "shown"),
        ("command: python train.py\ndisplay_name: shown\nname: own\n", "own"),
    ):
        path.write_text(text)
        assert name_of(read(path), Flags()) == name
    assert name_of(read(path), Flags(name="flag")) == "flag"


def test_how_many_nodes(tmp_path: Path) -> None:
    path = tmp_path / "job.yml"
    path.write_text("command: hostname\nranklift:\n  nodes: 0-2\nresources:\n  instance_count: 2\n")
    job = read(path)
    assert node_count(job, None) == 2
    assert node_count(dataclasses.replace(job, instance_count=None), None) == 1
    assert node_count(dataclasses.replace(job, instance_count=None), 3) is None
    assert node_count(job, 2) is None
    with pytest.raises(InputError, match=r"line 5: resources.instance_count = 2: .*, line 3 names 3 nodes"):
        node_count(job, 3)
