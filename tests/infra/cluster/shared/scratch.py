"""A kind of shared storage outside the package: a parallel file system on a server that exists."""

from __future__ import annotations

from images.shared_mount import SharedMount
from infra.cluster.shared.base import SharedResources, SharedSite
from infra.cluster.shared.registry import KINDS
from infra.config.cluster_config import ClusterConfig, SharedFolder, Storage
from infra.config.collector import Settings
from infra.config.readers import text
from infra.preflight.meters import Part, premium_disk


class Scratch:
    """Mounts ``scratchServer``, and keeps its journal on a disk of the stack's."""

    name = "scratch"
    keys: tuple[str, ...] = ("scratchServer",)

    def read(self, settings: Settings, _storage: Storage) -> SharedFolder:
        server = settings.required("scratchServer", text)
        return SharedFolder(kind=self.name, options={"server": server}, addresses=2)

    def build(self, site: SharedSite) -> SharedResources:
        import pulumi
        from pulumi_azure_native.compute._inputs import CreationDataArgs
        from pulumi_azure_native.compute.disk import Disk

        assert site.data is not None
        assert site.config.shared is not None
        journal = Disk(
            "journal",
            disk_name=f"{site.place.name}-journal",
            disk_size_gb=64,
            creation_data=CreationDataArgs(create_option="Empty"),
            resource_group_name=site.data.group.name,
            opts=site.data.opts,
        )
        server = site.config.shared.options["server"]
        return SharedResources(pulumi.Output.from_input(f"{server}@tcp:/scratch"), [journal])

    def mount(self, source: str) -> SharedMount:
        return SharedMount(source, type="lustre", options="flock,_netdev", packages=())

    def parts(self, name: str, _config: ClusterConfig) -> list[Part]:
        return [
            Part(what="journal", name=f"{name}-journal", billing="meter", meter=premium_disk(64)),
            Part(what="scratch server", billing="unknown", note="by contract"),
        ]


def add() -> None:
    """Enter the kind."""
    KINDS[Scratch.name] = Scratch()
