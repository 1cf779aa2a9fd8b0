"""Reads job files with Microsoft's own client: ``azure_ai_ml.py FILE...`` prints a JSON object by file.

Runs under an environment of its own, which has ``azure-ai-ml``. The ``ranklift:`` block, which Azure ML has
no word for, is taken out first.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from azure.ai.ml import load_job  # type: ignore[import-not-found,import-untyped,unused-ignore]


def read(path: Path) -> dict[str, Any]:
    """What the client makes of one file."""
    source: Any = path
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError:
        content = None
    if isinstance(content, dict) and content.pop("ranklift", None) is not None:
        source = io.StringIO(yaml.safe_dump(content))
    try:
        job = load_job(source, relative_origin=str(path))
    except Exception as error:  # noqa: BLE001  (whatever it raises is a refusal)
        return {"accepted": False, "error": " ".join(str(error).split())}
    return {"accepted": True, "values": values(job)}


def values(job: Any) -> dict[str, Any]:
    """What the job says, as plain data."""
    resources, limits, distribution = job.resources, job.limits, job.distribution
    return {
        "command": job.command,
        "code": job.code,
        "name": job.name,
        "display_name": job.display_name,
        "experiment_name": job.experiment_name,
        "description": job.description,
        "tags": dict(job.tags),
        "inputs": {name: data(value) for name, value in job.inputs.items()},
        "outputs": {name: data(value) and plain(data(value)) for name, value in job.outputs.items()},
        "environment_variables": dict(job.environment_variables),
        "distribution": distribution and dict(vars(distribution)),
        "instance_count": resources and resources.instance_count,
        "shm_size": resources and resources.shm_size,
        "timeout": limits and limits.timeout,
    }


def data(value: Any) -> Any:
    """An input's or output's own value, without what pipelines wrap around it."""
    return getattr(value, "_data", value)


def plain(value: Any) -> Any:
    """For JSON: what the client has classes for becomes its type and path."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return {"type": value.type, "path": value.path}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    json.dump({path: read(Path(path)) for path in sys.argv[1:]}, sys.stdout, default=plain)
