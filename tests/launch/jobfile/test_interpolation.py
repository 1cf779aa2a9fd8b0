"""Expressions in a job file: replaced where Azure ML replaces them, refused with their line elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.data.data_spec import BlobAddress, DatastorePath
from launch.errors import InputError
from launch.jobfile import JobFile, destination, read, read_conda
from launch.jobfile.to_spec import Pushed, make

DEFAULT = "azureml://datastores/${{default_datastore}}/paths/azureml/${{name}}/${{output_name}}/"
"""Where Azure ML puts an output that has no path."""


def written(folder: Path, text: str) -> JobFile:
    path = folder / "job.yml"
    path.write_text(text)
    return read(path)


def refused(folder: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        written(folder, text)
    return str(caught.value).removeprefix(f"{folder}/job.yml, ")


def with_path(path: str) -> str:
    return f"command: ls\ninputs: {{run: a}}\noutputs:\n  model:\n    path: {path}\n"


@pytest.mark.parametrize(
    ("path", "address"),
    [
        (DEFAULT, DatastorePath("workspaceblobstore", "azureml/train-1/model")),
        (
            "azureml://datastores/big/paths/a-${{ name }}-${{name}}",
            DatastorePath("big", "a-train-1-train-1"),
        ),
        (
            "https://acme.blob.core.windows.net/sets/${{name}}/x",
            BlobAddress("https://acme.blob.core.windows.net", "sets", "train-1/x"),
        ),
    ],
)
def test_an_outputs_path_names_the_job_the_output_and_the_default_datastore(
    tmp_path: Path, path: str, address: object
) -> None:
    job = written(tmp_path, with_path(path))
    assert destination(job.places["outputs.model.path"], "train-1") == address


def test_outputs_that_share_a_path_by_an_alias_have_their_own_names(tmp_path: Path) -> None:
    job = written(tmp_path, f"command: ls\noutputs:\n  a: &one {{path: '{DEFAULT}'}}\n  b: *one\n")
    places = [destination(job.places[f"outputs.{name}.path"], "J") for name in "ab"]
    assert [one.path for one in places] == ["azureml/J/a", "azureml/J/b"]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("azureml://datastores/big/paths/${{inputs.run}}", "'${{inputs.run}}': is not replaced in the path"),
        ("azureml://datastores/big/paths/${{outputs.model}}", "'${{outputs.model}}': is not replaced in the"),
        ("azureml://datastores/big/paths/${{parent.name}}", "'${{parent.name}}': is for the steps of a pipe"),
        ("azureml://datastores/big/paths/${{name}/x", "'${{name}/x': ${{ is not closed"),
        ("azureml://datastores/big/paths/{{$name}}/x", "'{{$name}}': has braces that are no expression"),
        ("https://${{name}}.blob.core.windows.net/abc/b", ": has the job's id where a datastore, an account"),
        (
            "https://acme.blob.core.windows.net/${{name}}/b",
            ": has the job's id where a datastore, an account",
        ),
        (
            "azureml://datastores/${{name}}/paths/b",
            ": has the job's id where a datastore, an account or a con",
        ),
        (f"azureml://datastores/big/paths/{'a' * 1025}", "': has a path of 1025 characters; shorten it"),
    ],
)
def test_what_is_not_replaced_in_an_outputs_path_is_refused_with_its_line(
    tmp_path: Path, path: str, problem: str
) -> None:
    told = refused(tmp_path, with_path(path))
    assert told.startswith("line 5: outputs.model.path = ")
    assert problem in told


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("tags: {run: 'a-${{name}}'}", "tags.run = '${{name}}'"),
        ("tags: {'${{name}}': a}", "tags.${{name}}"),
        ("description: of ${{inputs.a}}", "description = '${{inputs.a}}'"),
        ("experiment_name: ${{ name }}", "experiment_name = '${{ name }}'"),
        ("name: x${{inputs.a", "name = '${{'"),
        ("code: ${{inputs.a}}", "code = "),
        ("inputs: {b: {path: 'azureml://datastores/x/paths/${{inputs.a}}'}}", "inputs.b.path = "),
        ("inputs: {b: {path: 'data/${{inputs.a}}'}}", "inputs.b.path = "),
        ("environment: {image: 'docker.io/x/y:${{inputs.a}}'}", "environment.image = "),
        ("environment: azureml:${{inputs.a}}", "environment = "),
        ("environment: {conda_file: {dependencies: ['numpy=${{inputs.a}}']}}", "environment.conda_file."),
        ("ranklift: {setup: 'echo ${{name}}'}", "ranklift.setup = "),
        ("ranklift: {python: '/opt/${{name}}'}", "ranklift.python = "),
        ("ranklift: {nodes: '${{inputs.a}}'}", "ranklift.nodes = "),
        ("ranklift: {mpirun_args: ['--tag', '${{name}}']}", "ranklift.mpirun_args[1] = "),
        ("ranklift: {metrics: {x: '${{name}} ([0-9]+)'}}", "ranklift.metrics.x = "),
    ],
)
def test_where_none_is_replaced_an_expression_is_refused_with_its_line(
    tmp_path: Path, text: str, key: str
) -> None:
    told = refused(tmp_path, f"command: ls\n{text}\n")
    assert told.startswith(f"line 2: {key}")
    assert told.endswith(("is not replaced here; write the value itself", "write the name itself"))


def test_set_may_not_bring_one_either(tmp_path: Path) -> None:
    (tmp_path / "job.yml").write_text("command: ls\n")
    with pytest.raises(InputError, match=r"^--set tags\.a: tags\.a = .*is not replaced here"):
        read(tmp_path / "job.yml", [("tags.a", "${{name}}")])


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("name", "ranks see the job's id as AZUREML_RUN_ID"),
        ("output_name", "write the output's name"),
        ("default_datastore", "write workspaceblobstore"),
        ("secrets.HF_TOKEN", "launch with --env HF_TOKEN: the script reads HF_TOKEN, whose value your shell"),
        ("search_space.lr", "is for sweeps; write one value"),
        ("anything", "names neither an input nor an output; write ${{inputs.name}}"),
    ],
)
def test_in_a_command_the_remedy_is_the_names_own(tmp_path: Path, name: str, remedy: str) -> None:
    told = refused(tmp_path, f"command: |\n  ls\n  train --x ${{{{{name}}}}}\n")
    assert told.startswith(f"line 3: command = '${{{{{name}}}}}': ")
    assert remedy in told


def test_a_secret_for_a_variable_is_given_as_that_variable(tmp_path: Path) -> None:
    told = refused(tmp_path, "command: ls\nenvironment_variables:\n  WANDB_API_KEY: ${{secrets.WANDB}}\n")
    assert told.startswith("line 3: environment_variables.WANDB_API_KEY = '${{secrets.WANDB}}'")
    assert "leave it out, and launch with --env WANDB_API_KEY: " in told


def test_a_secret_in_a_conda_files_packages_is_given_by_name(tmp_path: Path) -> None:
    path = tmp_path / "conda.yml"
    path.write_text("dependencies:\n  - pip:\n      - --index-url https://u:${{secrets.T}}@host/simple\n")
    with pytest.raises(InputError, match=r"line 3: .*write \$\{NAME\}, and give --fill NAME") as caught:
        read_conda(path)
    assert "secrets.T" not in str(caught.value), "an address's password is shown by no error"


def test_an_outputs_name_is_a_folder_that_a_node_can_make(tmp_path: Path) -> None:
    job = written(tmp_path, f"command: ls\noutputs:\n  {'a' * 101}:\n")
    with pytest.raises(InputError, match=r"line 3: .*use at most 100 letters"):
        make(job, nodes=1, identifier="j", home="/root", pushed=Pushed("", (), {}))


def test_inputs_that_contain_one_another_are_bounded_in_all(tmp_path: Path) -> None:
    nested = "".join(
        f"  {name}: {('${{inputs.' + inner + '}}') * 10}\n" for name, inner in ("ba", "cb", "dc")
    )
    many = "".join(f"  i{number}: ${{{{inputs.d}}}}\n" for number in range(9000))
    text = f"command: ls\ninputs:\n  a: {'x' * 10}\n{nested}{many}"
    assert "makes the inputs longer than 4 MiB in all; put them into files" in refused(tmp_path, text)
