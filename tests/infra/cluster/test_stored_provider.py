"""What a stack's state holds of its dynamic providers: a name, which every Python reads."""

from __future__ import annotations

import base64
import json
import pickletools
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from pulumi.dynamic.dynamic import serialize_provider

from infra.cluster.stored_provider import StoredProvider
from infra.stored_providers import KeyPairProvider, TeardownReportProvider
from tests.infra.azure_answers import Azure, rehearsed, served
from tests.infra.programs import CONFIGURATIONS, programs

ROOT = Path(__file__).parents[3]
PROVIDERS = [KeyPairProvider, TeardownReportProvider]
HOST = """
import base64, json, sys, dill
provider = dill.loads(base64.b64decode(sys.stdin.read()))
props = {"stack": "dev", "subscription": "", "retain": False}
made = provider.create(props)
print(json.dumps({
    "file": sys.modules["infra"].__file__,
    "outs": made.outs,
    "same": provider.diff(made.id, props, props).changes,
    "changed": provider.diff(made.id, props, {**props, "retain": True}).changes,
}))
provider.update(made.id, props, {**props, "retain": True})
provider.delete(made.id, props)
"""
"""Does with a provider what Pulumi's process does with it."""


def content(stored: str) -> list[object]:
    """What the pickle holds: its operations' arguments, but for its version and its frames' sizes."""
    operations = pickletools.genops(base64.b64decode(stored))
    return [
        found for each, found, _ in operations if found is not None and each.name not in ("PROTO", "FRAME")
    ]


def by_name(provider: type[StoredProvider]) -> list[object]:
    """What ``methodcaller(NAME)(import_module("stored_providers"))`` holds."""
    return ["operator", "methodcaller", provider.__name__, "importlib", "import_module", "stored_providers"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_stored_form_is_a_name_and_the_same_text_on_every_python(provider: type[StoredProvider]) -> None:
    assert content(serialize_provider(provider())) == by_name(provider)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_program_stores_no_other_providers(name: str) -> None:
    stored = programs()[name].providers
    assert {each.split()[1] for each in stored} == {"user-key", "cluster-key", "host-key", "teardown-report"}
    known = [by_name(provider) for provider in PROVIDERS]
    assert [each for each, text in stored.items() if content(text) not in known] == []


def test_every_provider_can_be_loaded_by_its_name() -> None:
    assert {each.__name__ for each in StoredProvider.__subclasses__()} == {
        each.__name__ for each in PROVIDERS
    }


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with what the project requires, in which the project itself is not installed."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    (installed,) = {
        path for path in sys.path if path.startswith(sys.prefix) and path.endswith("site-packages")
    }
    for package in Path(installed).iterdir():
        if package.suffix != ".pth":
            (site / package.name).symlink_to(package)
    return folder / "bin" / "python"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_pulumis_process_loads_it_from_the_programs_folder_alone(
    provider: type[StoredProvider], bare_python: Path, tmp_path: Path
) -> None:
    with served(Azure()) as url:
        ran = subprocess.run(
            [bare_python, "-c", HOST],
            input=serialize_provider(provider()),
            env={"PATH": "/usr/bin:/bin", **rehearsed(url, tmp_path)},
            cwd=ROOT / "infra",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert seen["file"] == str(ROOT / "infra" / "__init__.py")
    assert seen["same"] is False
    if provider is TeardownReportProvider:
        assert (seen["outs"]["stack"], seen["changed"]) == ("dev", True)
        assert "nothing of stack dev is left" in ran.stderr
    else:
        assert (seen["outs"]["public_key"].split()[0], seen["changed"]) == ("ssh-ed25519", False)
