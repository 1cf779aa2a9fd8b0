"""``Run``: a submitted job in Azure ML's terms."""

from __future__ import annotations

import getpass
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from launch.azureml.exceptions import (
    ActivityFailedException,
    ExperimentExecutionException,
    UserErrorException,
)
from launch.azureml.files import Files, copy_new, destination, local_paths
from launch.azureml.missing import Element
from launch.azureml.notices import report, write_line
from launch.azureml.program import Fab

__all__ = ["Run", "ScriptRun"]

_STATUS = {
    "QUEUED": "Queued",
    "STARTING": "Preparing",
    "RUNNING": "Running",
    "SUCCEEDED": "Completed",
    "INCOMPLETE": "Failed",
    "FAILED": "Failed",
    "CANCELLED": "Canceled",
    "LOST": "Failed",
}
"""Azure ML's status by state. INCOMPLETE and LOST become Failed, which ends a poll loop; the details give the
reason."""
_OVER = ("Completed", "Failed", "Canceled")


class Run(Element):
    """One job on a stack, by its id; the stack is the chosen one unless this process submitted the run."""

    _known_as = "Run"

    def __init__(
        self,
        experiment: Any,
        run_id: str,
        outputs: Any = None,
        **kwargs: Any,
    ) -> None:
        self.experiment = experiment
        self.id = run_id
        self.type = "azureml.scriptrun"
        self.number: int | None = None
        self.parent: Run | None = None
        self._fab = Fab(None)
        self._head: str | None = None
        self._definition: dict[str, Any] = {}
        self._files = Files(self._fab, run_id)
        self._last: dict[str, Any] | None = None
        self._complete = True

    @staticmethod
    def get(workspace: Any, run_id: str) -> Run:
        """Return a run that was submitted earlier. Raise UserErrorException when no node has it."""
        found = workspace.get_run(run_id)
        assert isinstance(found, Run)  # noqa: S101  the type of get_run
        return found

    def get_status(self) -> str:
        """Return the current status: Queued, Preparing, Running, Completed, Failed or Canceled."""
        return _STATUS[self.record()["state"]]

    status = property(get_status)

    def record(self) -> dict[str, Any]:
        """Return the job's record from ``fab jobs --json``: its state, nodes, times and failure.

        Raise UserErrorException when no node has the job, ExperimentExecutionException when one of the nodes
        or records that cannot be read may.
        """
        last = self._last
        # `fab upload` makes an incomplete job succeed.
        if last is not None and last["state"] != "INCOMPLETE" and _STATUS[last["state"]] in _OVER:
            return last
        records, problem = self._fab.jobs(*_where(self._head))
        for record in records:
            if record["job"] == self.id:
                self._last = dict(record)
                return self._last
        if problem:
            raise ExperimentExecutionException(problem)
        raise UserErrorException("run_id", self.id, "no node has this job", "see `fab jobs`")

    def wait_for_completion(
        self, show_output: bool = False, wait_post_processing: bool = False, raise_on_error: bool = True
    ) -> dict[str, Any]:
        """Wait for the run's end and return :meth:`get_details`.

        With ``show_output`` the ranks' lines go to stdout as they are written, each with its rank and
        node. An interrupt leaves the run going. Raise ActivityFailedException with the last lines of
        the first rank that failed, unless ``raise_on_error`` is off; a cancelled run raises nothing.
        """
        if show_output:
            write_line(f"RunId: {self.id}\nTo follow it elsewhere: {self.get_portal_url()}\n", sys.stdout)
        try:
            answer = self._fab.run(
                ["logs", "-f", self.id],
                lambda text: write_line(text, sys.stdout) if show_output else None,
                None if show_output else lambda _: None,
            )
        except KeyboardInterrupt:
            sys.stderr.write(f"\nrun {self.id} continues; run.cancel() ends it\n")
            raise
        record = self.record()
        if _STATUS[record["state"]] not in _OVER:
            raise ExperimentExecutionException(
                f"run {self.id} could not be reached and may still run; wait again\n{answer.error}"
            )
        details = self._details(record)
        if show_output:
            end = f"RunId: {self.id}\nStatus: {details['status']}"
            write_line(f"\nExecution Summary\n=================\n{end}", sys.stdout)
        if details["status"] == "Failed":
            failed = self._failure(record)
            if raise_on_error:
                raise failed
            if show_output:
                write_line(f"\nError:\n{failed.error_details}", sys.stdout)
        return details

    def _failure(self, record: Mapping[str, Any]) -> ActivityFailedException:
        failure = record.get("failure") or {}
        status = record["exit_status"]
        return ActivityFailedException(
            self.id,
            record["state"],
            255 if status is None else status,
            record["reason"],
            tuple(failure.get("last_lines") or ()),
        )

    def cancel(self) -> None:
        """Cancel the run and return once all its processes have exited; an ended run stays as it is."""
        self._fab.json("cancel", self.id)

    def get_details(self) -> dict[str, Any]:
        """Return the run's details under Azure ML's keys."""
        return self._details(self.record())

    def _details(self, record: Mapping[str, Any]) -> dict[str, Any]:
        status = _STATUS[record["state"]]
        details: dict[str, Any] = {
            "runId": self.id,
            "target": self._fab.stack,
            "status": status,
            "startTimeUtc": record["started"],
            **({"endTimeUtc": record["ended"]} if record["ended"] else {}),
            "properties": {"nodes": list(record["nodes"]), "processes": record["ranks"]},
            "inputDatasets": [],
            "outputDatasets": [],
            "runDefinition": self._definition,
            "logFiles": {},
            "submittedBy": _user(),
        }
        if status == "Failed":
            details["error"] = {
                "error": {"code": record["state"], "message": self._failure(record).error_details},
                "exitStatus": record["exit_status"],
            }
        return details

    def get_details_with_logs(self) -> dict[str, Any]:
        """Return :meth:`get_details` with the text of each process's log under ``logFiles``."""
        logs = {name: path for name, path in self._table().items() if name.startswith("user_logs/")}
        return self.get_details() | {
            "logFiles": {name: path.read_text(errors="replace") for name, path in logs.items()}
        }

    def get_tags(self) -> dict[str, str]:
        """Return the run's tags: those that it was submitted with, and those that were added."""
        return dict(self.record().get("tags") or {})

    tags = property(get_tags)

    def set_tags(self, tags: Mapping[str, Any]) -> None:
        """Add tags, which ``fab job`` shows; if the run's head cannot keep them, report that as a notice."""
        words = [f"--tag={name}={'' if value is None else value}" for name, value in dict(tags).items()]
        if not words:
            return
        try:
            self._fab.json("job", self.id, *words)
        except ExperimentExecutionException as error:
            report([f"run {self.id}: {', '.join(map(str, tags))} not kept: {error}"])
        self._last = None

    def tag(self, key: str, value: str | None = None) -> None:
        """Add one tag."""
        self.set_tags({key: value})

    def add_properties(self, properties: Mapping[str, Any]) -> None:
        """Add properties, as tags."""
        report(["run properties are kept as tags, which `fab job` shows"])
        self.set_tags(properties)

    def get_properties(self) -> dict[str, str]:
        """Return the tags, which hold the properties."""
        return self.get_tags()

    properties = property(get_properties)

    @property
    def display_name(self) -> str:
        """The tag of this name, else the run's id."""
        return self.get_tags().get("display_name", self.id)

    @display_name.setter
    def display_name(self, name: str) -> None:
        self.tag("display_name", name)

    name = display_name

    @property
    def description(self) -> str | None:
        """The tag of this name; None without one."""
        return self.get_tags().get("description")

    @description.setter
    def description(self, text: str) -> None:
        self.tag("description", text)

    def get_metrics(
        self, name: str | None = None, recursive: bool = False, run_type: Any = None, populate: bool = False
    ) -> dict[str, Any]:
        """Return no metrics: nothing collects what a script logs."""
        report(["Run.get_metrics: nothing is collected; `fab report` shows figures of the run's lines"])
        return {}

    def get_children(
        self,
        recursive: bool = False,
        tags: Any = None,
        properties: Any = None,
        type: Any = None,
        status: Any = None,
        _rehydrate_runs: bool = True,
    ) -> Iterator[Run]:
        """Yield nothing: a run has no child runs."""
        return iter(())

    def register_model(  # noqa: PLR0913, PLR0917
        self,
        model_name: str,
        model_path: str | None = None,
        tags: Any = None,
        properties: Any = None,
        model_framework: Any = None,
        model_framework_version: Any = None,
        description: str | None = None,
        datasets: Any = None,
        sample_input_dataset: Any = None,
        sample_output_dataset: Any = None,
        resource_configuration: Any = None,
        **kwargs: Any,
    ) -> SimpleNamespace:
        """Return what was given: no model is registered, as a notice says."""
        path = model_path or "outputs"
        report(
            [f"Run.register_model: {model_name} is not registered; run.download_files({path!r}) copies it"]
        )
        return SimpleNamespace(
            name=model_name, id=None, version=None, run_id=self.id, description=description
        )

    def get_portal_url(self) -> str:
        """Return the command that shows the run, as there is no portal."""
        return f"fab logs -f {self.id}" + (f" --stack {self._fab.stack}" if self._fab.stack else "")

    portal_url = property(get_portal_url)

    def get_file_names(self) -> list[str]:
        """Return the names of the run's files: ``outputs/…``, ``user_logs/…`` and ``system_logs/…``.

        The files are fetched from all nodes, only once after the run's end. Of different files with one
        name, the lowest node's keeps the name; the others are under ``outputs/<node>/``.
        """
        return list(self._table())

    def _table(self) -> Mapping[str, Path]:
        record = self.record()
        return self._files.table(record["nodes"], record["ranks"], final=_STATUS[record["state"]] in _OVER)

    def download_file(
        self, name: str, output_file_path: str | None = None, _validate_checksum: bool = False
    ) -> None:
        """Copy one file to ``output_file_path``: a file or a folder; the current folder when not given.

        Raise UserErrorException when the run has no such file, and where another is there already.
        """
        table = self._table()
        if name not in table:
            raise UserErrorException("name", name, "the run has no such file", "see run.get_file_names()")
        target = destination(name, output_file_path)
        file = (name, table[name], target)
        copy_new([file], "output_file_path", output_file_path, is_folder=False)

    def download_files(
        self,
        prefix: str | None = None,
        output_directory: str | None = None,
        output_paths: Sequence[str] | None = None,
        batch_size: int = 100,
        append_prefix: bool = True,
        timeout_seconds: int | None = None,
    ) -> None:
        """Copy all files, or those of the folder ``prefix``, into ``output_directory`` (or here).

        ``append_prefix=False`` omits the prefix from the target paths; ``output_paths`` gives them one
        by one. Raise UserErrorException when there is no such folder, and, with nothing copied, where other
        files are there already.
        """
        wanted = prefix.replace("\\", "/").strip("/") + "/" if prefix else ""
        names = {name: path for name, path in self._table().items() if name.startswith(wanted)}
        if wanted and not names:
            remedy = "see run.get_file_names()"
            raise UserErrorException("prefix", prefix, "the run has no files there", remedy)
        shorter = "" if append_prefix else wanted
        paths = local_paths(list(names), output_directory, output_paths, shorter)
        files = [(*file, path) for file, path in zip(names.items(), paths, strict=True)]
        copy_new(files, "output_directory", output_directory)

    def get_all_logs(self, destination: str | None = None) -> list[str]:
        """Copy the logs of all ranks into ``destination`` (the current folder) and return their paths. Raise
        UserErrorException where others are there already."""
        folder = Path(destination or ".")
        logs = {name: path for name, path in self._table().items() if name.startswith("user_logs/")}
        copy_new([(name, path, folder / name) for name, path in logs.items()], "destination", destination)
        return [str(folder / name) for name in logs]

    def __repr__(self) -> str:
        return f"Run(Experiment: {getattr(self.experiment, 'name', None)}, Id: {self.id}, Type: {self.type})"


class ScriptRun(Run):
    """The run that :meth:`Experiment.submit` returns."""

    RUN_TYPE = "azureml.scriptrun"

    def __init__(
        self, experiment: Any, run_id: str, directory: Any = None, _run_config: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(experiment, run_id, **kwargs)

    @classmethod
    def submitted(
        cls, experiment: Any, run_id: str, stack: str | None, head: str | None, job: Mapping[str, Any]
    ) -> ScriptRun:
        """Return the run of job file ``job``, just submitted to ``head`` of ``stack``."""
        run = cls(experiment, run_id)
        run._fab = Fab(stack)
        run._files = Files(run._fab, run_id)
        run._head = head
        run._definition = dict(job)
        return run


def _where(head: str | None) -> list[str]:
    """Return options that query the job's head alone, which costs the same on every stack.

    A scale set's VM names end in the instance id, base 36; other names give no options.

    >>> _where("node00000a"), _where(None), _where("login")
    (['--nodes', '10'], [], [])
    """
    match = re.fullmatch(r"\D*([0-9a-z]{6})", head or "")
    return ["--nodes", str(int(match[1], 36))] if match else []


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # KeyError until Python 3.13
        return str(os.getuid())
