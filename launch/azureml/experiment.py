"""``Experiment``: a name under which runs are submitted."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from launch.access import repository_of
from launch.azureml.dataset import settle
from launch.azureml.environment import DOCKERFILE
from launch.azureml.exceptions import NotSupported, UserErrorException
from launch.azureml.missing import Element
from launch.azureml.notices import report
from launch.azureml.program import Fab
from launch.azureml.run import Run, ScriptRun
from launch.azureml.script_run_config import ScriptRunConfig
from launch.azureml.submission import in_script_words, submission

__all__ = ["Experiment"]

_NAME = re.compile(r"[a-zA-Z0-9][\w-]{0,254}")


class Experiment(Element):
    """Runs of one purpose; the name is part of their ids and appears in ``fab jobs --json``.

    >>> Experiment(None, "my experiment")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    launch.azureml.exceptions.UserErrorException: name = 'my experiment': is not an experiment's name; ...
    """

    def __init__(
        self,
        workspace: Any,
        name: str,
        _skip_name_validation: bool = False,
        _id: Any = None,
        _archived_time: Any = None,
        _create_in_cloud: bool = True,
        _experiment_dto: Any = None,
        **kwargs: Any,
    ) -> None:
        if not _skip_name_validation and not _NAME.fullmatch(name):
            remedy = "use up to 255 letters, digits, - and _, the first a letter or digit"
            raise UserErrorException("name", name, "is not an experiment's name", remedy)
        self.workspace = workspace
        self.name = name
        self._complete = True

    def submit(self, config: ScriptRunConfig, tags: Mapping[str, str] | None = None, **kwargs: Any) -> Run:
        """Push the code, submit the job and return at once; the job runs on by itself.

        Raise UserErrorException before anything is sent when the configuration is wrong, NotSupported
        for other configurations than ScriptRunConfig, ExperimentExecutionException when the cluster
        refuses the job.
        """
        if not isinstance(config, ScriptRunConfig):
            raise NotSupported(f"submitting a {type(config).__name__}", "submit a ScriptRunConfig")
        if kwargs.pop("run_id", None) is not None:
            raise NotSupported("a run_id of one's own", "leave it out and read run.id")
        if kwargs.pop("credential_passthrough", False):
            config.run_config.credential_passthrough = True
        if kwargs:
            raise TypeError(f"submit() got an unexpected keyword argument {next(iter(kwargs))!r}")
        planned = submission(config, self.name, tags or {}, os.environ)
        report(planned.notices)
        settle(planned.job.get("inputs", {}), partial(Fab(planned.stack).json, "data.ls"))
        with tempfile.TemporaryDirectory(prefix="ranklift-") as folder:
            path = Path(folder) / "job.yml"
            path.write_text(text := _yaml(planned.job))
            if planned.dockerfile is not None:
                dockerfile = path.parent / DOCKERFILE
                dockerfile.parent.mkdir()
                dockerfile.write_text(planned.dockerfile)
            # What the user's own program names, as they type it elsewhere, with what these files include.
            own = [planned.job["code"], *map(_readable, planned.files)]
            allowed = (word for one in dict.fromkeys(own) for word in ("--allow-path", one))
            fab = Fab(planned.stack, partial(in_script_words, path=str(path), job_file=text))
            taken = fab.json("launch", str(path), "--name", self.name, *allowed, "--detach")
        return ScriptRun.submitted(self, taken["job"], planned.stack, taken.get("head"), planned.job)

    def get_runs(
        self, type: Any = None, tags: Any = None, properties: Any = None, include_children: bool = False
    ) -> Iterator[Run]:
        """Yield the runs of this name on the chosen stack's nodes, newest first; properties are tags. Report
        as a notice why some may be missing."""
        wanted = {**_wanted(properties), **_wanted(tags)}
        records, problem = Fab(None).jobs()
        if problem:
            report([f"not all runs may be listed: {problem}"])
        for record in reversed(records):
            has = record.get("tags") or {}
            if record.get("experiment") == self.name and all(
                name in has and value in (None, has[name]) for name, value in wanted.items()
            ):
                yield ScriptRun(self, record["job"])

    def get_portal_url(self) -> str:
        """Return the command that lists the runs, as there is no portal."""
        return "fab jobs"

    portal_url = property(get_portal_url)

    @property
    def workspace_object(self) -> Any:
        """The workspace."""
        return self.workspace

    def __repr__(self) -> str:
        return f"Experiment(Name: {self.name})"


def _readable(file: str) -> str:
    """Return what may be read with a file: its repository, the file alone where it is in none."""
    return str(repository_of(Path(file).parent) or file)


def _wanted(given: Any) -> Mapping[str, Any]:
    return {given: None} if isinstance(given, str) else given or {}


def _yaml(job: Mapping[str, Any]) -> str:
    import yaml

    # Escapes instead of letters, as YAML forbids some characters that arguments may hold.
    return str(yaml.safe_dump(dict(job), sort_keys=False, allow_unicode=False, width=1 << 20))
