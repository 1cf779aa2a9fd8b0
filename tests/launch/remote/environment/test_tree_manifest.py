"""A folder's manifest names all that a node needs to have the same folder."""

from __future__ import annotations

from pathlib import Path

from launch.remote.environment.tree_manifest import manifest_of
from launch.remote.store.assemble import Builder
from launch.remote.store.manifest import Manifest
from launch.remote.store.store import ENVIRONMENTS, Store


def test_empty_folders_are_kept_since_containers_mount_there(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in ("proc", "mnt/deep/deeper", "bin"):
        (source / "root" / name).mkdir(parents=True)
    (source / "root/bin/sh").write_text("#!")
    (source / "root/lib").symlink_to("/usr/lib")
    manifest = Manifest(manifest_of(str(source)), "0123456789abcdef")
    store = Store(str(tmp_path / "node"), ENVIRONMENTS)
    builder = Builder(store, manifest, check=True, verify=False)
    builder.expect(builder.start())
    builder.feed(b"#!")
    builder.finish()
    made = Path(store.path(manifest.id))
    names = sorted(str(path.relative_to(made)) for path in made.rglob("*"))
    assert names == [
        *("root", "root/bin", "root/bin/sh", "root/lib"),
        *("root/mnt", "root/mnt/deep", "root/mnt/deep/deeper", "root/proc"),
    ]
    assert (made / "root/lib").readlink() == Path("/usr/lib")
    assert store.intact(manifest)
