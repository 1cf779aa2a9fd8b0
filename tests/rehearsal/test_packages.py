"""A rehearsal without its Python packages: they and the command that installs them are named."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

from launch.errors import MissingTool
from rehearsal import control, requirements
from rehearsal.requirements import check_packages


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without aiohttp."""
    find = metadata.version

    def version(name: str) -> str:
        if name == "aiohttp":
            raise metadata.PackageNotFoundError(name)
        return find(name)

    monkeypatch.setattr(metadata, "version", version)


def installed_from(monkeypatch: pytest.MonkeyPatch, note: str | None) -> None:
    class Installed(metadata.Distribution):
        def read_text(self, filename: str) -> str | None:
            return note if filename == "direct_url.json" else None

        def locate_file(self, path: object) -> Path:
            return Path(str(path))

    monkeypatch.setattr(metadata, "distribution", lambda _: Installed())
    wanted = ["fabric>=3.2.2", 'grpcio; extra == "rehearsal"', 'aiohttp>=3.10; extra == "rehearsal"']
    monkeypatch.setattr(metadata, "requires", lambda _: wanted)


def test_a_whole_environment_is_taken() -> None:
    check_packages()


@pytest.mark.usefixtures("lacking")
def test_a_checkout_names_its_own_folder(tmp_path: Path) -> None:
    project = tmp_path / "my ranklift"
    (project / "requirements").mkdir(parents=True)
    (project / "requirements" / "rehearsal.in").write_text("# why\ngrpcio\naiohttp>=3.10\n")
    with pytest.raises(MissingTool) as caught:
        check_packages(project)
    command = f"pip install '{project}[rehearsal]', or `make setup` there"
    assert (
        str(caught.value) == f"the extra rehearsal (aiohttp) is missing: install Ranklift with it: {command}"
    )


@pytest.mark.usefixtures("lacking")
def test_an_installed_package_names_what_it_was_installed_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for note, source in (
        (None, "ranklift"),
        (f'{{"url": "file://{tmp_path}", "dir_info": {{}}}}', str(tmp_path)),
        ('{"url": "file:///gone/ranklift", "dir_info": {}}', "ranklift"),
        ('{"url": "https://example.org/ranklift.whl", "archive_info": {}}', "ranklift"),
    ):
        installed_from(monkeypatch, note)
        with pytest.raises(MissingTool, match=re.escape(f"pip install '{source}[rehearsal]'") + "$"):
            check_packages(tmp_path / "site-packages")


@pytest.mark.usefixtures("lacking")
def test_nothing_is_started_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "_TOOLS", {})
    for begin in (control.start, control.start_steps):
        with pytest.raises(MissingTool, match=r"^the extra rehearsal \(aiohttp\) is missing: "):
            begin(tmp_path)
    assert list(tmp_path.iterdir()) == []
