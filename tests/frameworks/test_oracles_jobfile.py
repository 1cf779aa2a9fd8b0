"""Job files against Microsoft's own client, azure-ai-ml, which lives in an environment of its own."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from launch.data.data_spec import AssetName, BlobAddress, DatastorePath, WebAddress
from launch.errors import InputError
from launch.jobfile import Data, JobFile, read

pytestmark = [pytest.mark.frameworks, pytest.mark.for_every_change]

ROOT = Path(__file__).resolve().parents[2]
ORACLE = ROOT / ".venv-oracles" / "bin" / "python"
FILES = ROOT / "tests" / "launch" / "jobfile" / "files"
GOOD, BAD, STRICTER = (sorted(FILES.glob(f"{kind}/*.yml")) for kind in ("good", "bad", "stricter"))
EXAMPLES = sorted(
    path for path in (ROOT / "examples").rglob("*.yml") if "command:" in path.read_text(encoding="utf-8")
)


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What azure-ai-ml makes of every file, asked once."""
    script = ROOT / "tests" / "launch" / "oracles" / "azure_ai_ml.py"
    files = [str(path) for path in (*GOOD, *BAD, *STRICTER, *EXAMPLES)]
    home = tmp_path_factory.mktemp("home")
    ran = subprocess.run(
        [str(ORACLE), str(script), *files],
        # No account's settings are looked at, and nothing is reported to anybody.
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", "AZURE_CORE_COLLECT_TELEMETRY": "0"},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, f"run `make frameworks`: {ran.stderr[-2000:]}"
    found = json.loads(ran.stdout)
    assert isinstance(found, dict)
    return found


def address_of(found: AssetName | BlobAddress | DatastorePath | WebAddress) -> str:
    """An address of ours as a file could have it."""
    match found:
        case AssetName(name, version):
            return f"{name}:{version}" if version else f"{name}@latest"
        case DatastorePath(datastore, path):
            return f"azureml://datastores/{datastore}/paths/{path}"
        case BlobAddress(account, container, path):
            return f"{account}/{container}/{path}"
    return found.url


def place_of(value: Data) -> str:
    if value.address is not None:
        return address_of(value.address)
    return str(value.local.resolve()) if value.local else f"file://{value.remote}"


def ours(job: JobFile) -> dict[str, Any]:
    """Our reading in the client's terms: what a value of the file comes to, before anything is filled in."""
    distribution = job.distribution
    shown: dict[str, Any] | None = None
    if distribution is not None:
        shown = {"type": distribution.kind}
        if distribution.kind == "tensorflow":
            shown["parameter_server_count"] = distribution.parameter_servers
            shown["worker_count"] = distribution.workers
        else:
            shown["process_count_per_instance"] = distribution.processes
    return {
        "command": job.command,
        "code": job.code and str(job.code.resolve()),
        "name": job.name,
        "display_name": job.display_name or None,
        "experiment_name": job.experiment or None,
        "description": job.description or None,
        "tags": dict(job.tags),
        "inputs": {
            name: (value.type, place_of(value)) if isinstance(value, Data) else value
            for name, value in job.inputs.items()
        },
        "outputs": {
            name: (value.type, value.path.rstrip("/") or None) for name, value in job.outputs.items()
        },
        "environment_variables": dict(job.env),
        "distribution": shown,
        "instance_count": job.instance_count,
        "shm_bytes": job.shm_bytes,
        "timeout": job.timeout_s,
    }


def theirs(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """The client's reading with the same defaults: paths resolved, literals as the text they become."""

    def at(relative: str) -> str:
        return relative if relative.startswith("file:") else str((path.parent / relative).resolve())

    def place(given: str) -> str:
        if re.fullmatch(r"[\w.-]+[:@][\w.-]+", given):
            return given  # an asset's name: the client takes "azureml:" off
        if "://" not in given or given.startswith("file:"):
            return at(given)
        plain = re.sub(r"^azureml://subscriptions/.*?/datastores/", "azureml://datastores/", given)
        hadoop = r"(?:wasbs|abfss)://(.+?)@(.+?)\.(?:blob|dfs)\.core\.windows\.net/(.*)"
        plain = re.sub(hadoop, r"https://\2.blob.core.windows.net/\1/\3", plain)
        return unquote(plain).rstrip("/")

    units = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
    size = values.pop("shm_size")
    return {
        **values,
        "code": values["code"] and at(values["code"]),
        "tags": {key: value or "" for key, value in values["tags"].items()},
        "inputs": {
            name: (value["type"], place(value["path"])) if isinstance(value, dict) else str(value)
            for name, value in values["inputs"].items()
        },
        "outputs": {
            name: ((value or {}).get("type") or "uri_folder", (value or {}).get("path"))
            for name, value in values["outputs"].items()
        },
        "environment_variables": {name: str(v) for name, v in values["environment_variables"].items()},
        "shm_bytes": size and int(size[:-1]) * units[size[-1]],
    }


def test_the_table_is_as_large_as_it_is_meant_to_be() -> None:
    assert len(GOOD) >= 20
    assert len(BAD) >= 20
    assert EXAMPLES


@pytest.mark.parametrize("path", [*GOOD, *EXAMPLES], ids=short)
def test_both_take_it_and_read_the_same(path: Path, azure: dict[str, Any]) -> None:
    answer = azure[str(path)]
    assert answer["accepted"], answer["error"]
    assert ours(read(path)) == theirs(path, answer["values"])


@pytest.mark.parametrize("path", BAD, ids=short)
def test_both_refuse_it(path: Path, azure: dict[str, Any]) -> None:
    assert not azure[str(path)]["accepted"]
    with pytest.raises(InputError):
        read(path)


@pytest.mark.parametrize("path", STRICTER, ids=short)
def test_we_alone_refuse_what_could_not_do_what_it_says(path: Path, azure: dict[str, Any]) -> None:
    assert azure[str(path)]["accepted"], "no longer stricter: move it to bad/"
    with pytest.raises(InputError):
        read(path)
