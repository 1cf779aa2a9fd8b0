"""What a head makes of an image for its runtime, and when it refuses to."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from launch.remote.environment import image as module
from launch.remote.environment.build import Failed
from launch.remote.environment.image import choose_runtime, identity
from launch.remote.environment.image_reference import Reference
from launch.remote.environment.image_registry import Registry, architecture
from tests.launch.remote.environment.image_requests import ID, install, made, request, unreported
from tests.launch.remote.environment.oci_registry import Image, OciRegistry, image, layer, member

pytestmark = pytest.mark.usefixtures("programs")


def small(**config: Any) -> Image:
    return image([layer(member("etc/hello", b"one")), layer(member("etc/hello", b"two"))], **config)


def test_for_charliecloud_the_layers_are_unpacked(
    served: OciRegistry, programs: Path, tmp_path: Path
) -> None:
    install(programs, "ch-run")
    name = served.add("train", "1", small(Env=["A=1"]))
    folder, lines = made(request(name), tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "image.json", "root"]
    assert (folder / "root/etc/hello").read_text() == "two"
    assert json.loads((folder / "config.json").read_text())["config"] == {"Env": ["A=1"]}
    names = {"reference": name, "digest": small(Env=["A=1"]).digest}
    assert json.loads((folder / "image.json").read_text()) == names
    assert lines[0] == f"looking up {name}"
    total = sum(each["size"] for each in json.loads(small(Env=["A=1"]).manifest)["layers"])
    assert f"pulling the image {total}/{total}" in lines


def test_for_docker_the_layers_become_an_archive_that_docker_load_reads(
    served: OciRegistry, programs: Path, tmp_path: Path
) -> None:
    install(programs, "docker")
    both = small()
    folder, _ = made(request(served.add("train", "1", both), "docker"), tmp_path)
    with tarfile.open(folder / "image.tar") as archive:

        def read(name: str) -> bytes:
            stream = archive.extractfile(name)
            assert stream is not None
            return stream.read()

        (entry,) = json.loads(read("manifest.json"))
        assert entry["RepoTags"] == [f"ranklift/{ID}:latest"]
        assert read(entry["Config"]) == (folder / "config.json").read_bytes()
        manifest = json.loads(both.manifest)
        assert [read(name) for name in entry["Layers"]] == [
            both.blobs[each["digest"]] for each in manifest["layers"]
        ]


def test_for_enroot_the_layers_become_a_squashfs_whose_script_runs_its_arguments(
    served: OciRegistry, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{programs}:/usr/sbin:/usr/bin:/bin")
    for name in ("enroot", "squashfuse", "fuse-overlayfs"):
        install(programs, name)
    folder, _ = made(request(served.add("train", "1", small()), "enroot"), tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "image.json", "image.sqsh"]
    listed = ["unsquashfs", "-cat", str(folder / "image.sqsh"), "etc/rc", "etc/hello"]
    assert subprocess.run(listed, capture_output=True, check=True).stdout == b'#!/bin/sh\nexec "$@"\ntwo'


def test_an_image_whose_etc_is_a_link_does_not_lead_out_of_its_root(
    served: OciRegistry, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    for name in ("enroot", "squashfuse", "fuse-overlayfs"):
        install(programs, name)
    install(programs, "mksquashfs", 'cp -r "$1" "$HOME/packed"')
    (tmp_path / "outside").mkdir()
    etc, _ = member("etc", type=tarfile.SYMTYPE, linkname=str(tmp_path / "outside"))
    made(request(served.add("train", "1", image([layer((etc, b""))])), "enroot"), tmp_path)
    assert not list((tmp_path / "outside").iterdir())
    inside = Path(f"{tmp_path}/packed{tmp_path}/outside")
    assert sorted(path.name for path in inside.iterdir()) == ["environment", "fstab", "rc"]


def test_the_identity_is_the_digest_the_architecture_and_the_form(
    served: OciRegistry, programs: Path
) -> None:
    for command in ("ch-run", "docker"):
        install(programs, command)
    name = served.add("train", "1", small())
    by_tag, by_digest = request(name), request(f"{served.host}/train@{small().digest}")
    assert identity(by_tag, unreported) == identity(by_digest, unreported)
    assert by_tag["reference"] == f"{name}@{small().digest}"
    assert identity(request(name, "docker"), unreported) != identity(by_tag, unreported)
    served.add("train", "1", small(Env=["B=2"]))
    assert identity(request(name), unreported) != identity(by_tag, unreported)


def test_a_registry_without_tls_is_called_without_it_once_its_tag_is_a_digest(
    served: OciRegistry, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``http://10.0.0.9:5000/train`` is: on loopback no word is needed."""
    install(programs, "ch-run")
    monkeypatch.setattr(Reference, "is_on_loopback", False)
    made(request(f"http://{served.add('train', '1', small())}"), tmp_path)
    assert (tmp_path / "environments" / ID / "root/etc/hello").read_text() == "two"


def test_a_digest_is_not_looked_up_so_that_what_is_there_needs_no_registry(programs: Path) -> None:
    install(programs, "ch-run")
    name = f"127.0.0.1:1/train@{small().digest}"
    assert small().digest in identity(request(name), unreported)


def test_a_tag_needs_its_registry_whose_silence_is_answered_with_the_digest_that_is_there(
    served: OciRegistry, programs: Path, tmp_path: Path
) -> None:
    install(programs, "ch-run")
    name = served.add("train", "1", small())
    made(request(name), tmp_path)
    shutil.copytree(tmp_path / "environments", tmp_path / ".ranklift/environments")
    gone = request(name.replace(str(served.port), "1"))
    with pytest.raises(Failed) as refused:
        identity(gone, unreported)
    assert "cannot reach 127.0.0.1:1" in str(refused.value)
    assert "to run" not in str(refused.value)
    names = tmp_path / ".ranklift/environments" / ID / "image.json"
    names.write_text(names.read_text().replace(str(served.port), "1"))
    for is_whole in (False, True):
        if is_whole:
            (tmp_path / f".ranklift/environments/{ID}.manifest").touch()
        with pytest.raises(Failed) as refused:
            identity(gone, unreported)
        advice = f"; to run the image of that name that is here, ask for {gone['reference']}@{small().digest}"
        assert str(refused.value).endswith(advice) == is_whole


def test_an_image_of_another_architecture_is_refused(
    served: OciRegistry, programs: Path, tmp_path: Path
) -> None:
    install(programs, "ch-run")
    name = served.add("train", "1", small(architecture="s390x"))
    with pytest.raises(Failed, match=f"is for linux/s390x, and the nodes are linux/{architecture()}"):
        made(request(name), tmp_path)


def test_an_image_larger_than_the_disk_is_refused_before_it_is_pulled(
    served: OciRegistry, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(programs, "ch-run")
    name = served.add("train", "1", small())
    total = sum(len(data) for data in small().blobs.values())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(total, total, 1))
    monkeypatch.setattr(Registry, "fetch", lambda *_: pytest.fail("a layer was pulled"))
    with pytest.raises(Failed, match=r"of compressed layers.* has 1 B free.*fab environment.prune"):
        made(request(name), tmp_path)


def test_the_first_runtime_that_works_is_taken(programs: Path) -> None:
    install(programs, "ch-run")
    install(programs, "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    assert choose_runtime("") == "charliecloud"
    install(programs, "docker")
    assert choose_runtime("") == "docker"
    assert choose_runtime("charliecloud") == "charliecloud"


def test_nodes_without_a_runtime_are_refused_with_the_reason_of_each(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(programs, "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    with pytest.raises(Failed) as refused:
        choose_runtime("")
    assert (
        "cannot run containers (docker: Cannot connect to the Docker daemon; "
        "enroot: no enroot or mksquashfs or squashfuse or fuse-overlayfs on PATH; "
        "charliecloud: no ch-run on PATH): take an image of nodes"
    ) in str(refused.value)
    with pytest.raises(Failed, match=r"\(charliecloud: no ch-run on PATH\)"):
        choose_runtime("charliecloud")
    install(programs, "docker", "exec /bin/sleep 60")
    monkeypatch.setattr(module, "_DOCKER_ANSWER_S", 0.2)
    with pytest.raises(Failed, match=r"its daemon does not answer within 0.2 s"):
        choose_runtime("docker")


def test_a_password_is_given_to_its_own_registry_alone(
    served: OciRegistry, programs: Path, tmp_path: Path
) -> None:
    install(programs, "ch-run")
    name = served.add("train", "1", small())
    secrets = {"elsewhere:5000": {"username": "ann", "password": "other"}}
    served.scheme = "Basic"
    with pytest.raises(Failed, match="asks for credentials"):
        made(request(name, registries=secrets), tmp_path)
    secrets[served.host] = {"username": "ann", "password": "secret"}
    shutil.rmtree(tmp_path / "environments", ignore_errors=True)
    folder, lines = made(request(name, registries=secrets), tmp_path)
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert b"secret" not in written
    assert "secret" not in "".join(lines)
