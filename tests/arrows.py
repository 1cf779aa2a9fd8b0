"""Which room may import which others."""

from __future__ import annotations

__all__ = ["ARROWS", "FOR_ALL"]

FOR_ALL = {
    *("launch.errors", "launch.moments", "launch.nodeset", "launch.numbers"),
    *("launch.remote.login", "launch.remote.reading"),
}
_NODE_ROOMS = (
    "agent base collect data debug environment environment.conda hangs head health lines log metrics mpi "
    "node node.runtimes probe sample store"
)
_NODE_CODE = {"launch.remote", *(f"launch.remote.{room}" for room in _NODE_ROOMS.split())}
_STACK = {"infra", "infra.arm", "infra.config", "infra.preflight"}
_REHEARSAL = {"rehearsal.control", "rehearsal.run_dir", "rehearsal.vms.api", "rehearsal.faults.fault_kinds"}
"""All of the rehearsal that others use."""
_ARM_ROOMS = {
    *("rehearsal.arm.auth", "rehearsal.arm.compute", "rehearsal.arm.network", "rehearsal.arm.offers"),
    *("rehearsal.arm.monitor", "rehearsal.arm.storage"),
}
ARROWS: dict[str, set[str]] = {
    "fabfile": {"playbooks"},
    "playbooks": {
        *("launch", "launch.launchers", "launch.remote.environment.request", "infra.arm", "infra.inventory"),
        *("infra.json_records", "launch.remote.base"),
        *_REHEARSAL,
        *(
            "playbooks.check",
            "playbooks.cli",
            "playbooks.data",
            "playbooks.jobs",
            "playbooks.nodes",
            "playbooks.observe",
            "playbooks.pulumi",
            "playbooks.stack",
        ),
    },
    "playbooks.cli": {
        *("launch.environment.curated", "launch.environment.named_files"),
        *("launch", "launch.launchers.shell_line", "launch.remote.base", "infra.inventory"),
        *("launch.environment.curated", "launch.environment.named_files"),  # completed by shells
        *("playbooks.project", "playbooks.selection", "playbooks.unwritable"),
    },
    "playbooks.ssh": {
        *("launch", "launch.remote.base", "infra.inventory", "playbooks.project", "playbooks.cli.output")
    },
    "playbooks.nodes": {
        *("launch", "launch.client", "launch.code", "launch.promise", "launch.remote.agent"),
        "launch.remote.base",
        *("launch.remote.environment.request", "launch.remote.node", "infra", "infra.arm", "infra.config"),
        "infra.preflight.stale",
        *("playbooks", "playbooks.cli", "playbooks.ssh"),
    },
    "playbooks.pulumi": {
        *("launch", "launch.remote.base", "playbooks", "playbooks.cli", "playbooks.nodes", "playbooks.ssh"),
        *_STACK,
    },
    "playbooks.jobs": {
        *("launch", "launch.client", "launch.code", "launch.data", "launch.environment", "launch.job"),
        "launch.jobfile",
        *("launch.launchers", "launch.remote.base", "launch.remote.head", "launch.report", "launch.results"),
        *("infra.inventory", "playbooks", "playbooks.check", "playbooks.cli", "playbooks.data"),
        *("playbooks.nodes", "playbooks.observe", "playbooks.ssh"),
    },
    "playbooks.data": {
        *("launch", "launch.client", "launch.data", "launch.job", "launch.jobfile", "launch.remote.base"),
        *("infra.arm", "infra.config", "infra.inventory", "infra.naming", "playbooks", "playbooks.cli"),
        "playbooks.nodes",
        *("playbooks.jobs", "playbooks.ssh"),
    },
    "playbooks.check": {
        *("launch", "launch.client", "launch.code", "launch.health", "launch.job", "launch.remote.base"),
        *("infra.arm", "infra.inventory", "playbooks", "playbooks.cli", "playbooks.jobs"),
        *("playbooks.nodes", "playbooks.ssh", "playbooks.stack"),
    },
    "playbooks.observe": {
        *("launch", "launch.client", "launch.jobfile", "launch.remote.base", "launch.remote.metrics"),
        *("launch.remote.sample", "launch.report", "launch.scaling", "infra.arm", "infra.inventory"),
        *("infra.preflight.prices", "infra.preflight.usage"),
        *("playbooks", "playbooks.cli", "playbooks.jobs", "playbooks.nodes", "playbooks.ssh"),
        *("playbooks.check", "playbooks.stack"),
        *("launch.code", "launch.remote.hangs"),
    },
    "playbooks.stack": {
        *("launch", "launch.client", "launch.code", "launch.remote.agent", "launch.remote.base"),
        *("launch.remote.node", "playbooks", "playbooks.cli"),
        *("playbooks.jobs", "playbooks.nodes", "playbooks.pulumi", "playbooks.ssh"),
        *_STACK,
    },
    "rehearsal": {
        *("rehearsal.arm", "rehearsal.arm.auth.directory", "rehearsal.arm.core"),
        *("rehearsal.arm.resource_types", "rehearsal.arm.services"),
        *("rehearsal.arm.storage", "rehearsal.faults", "rehearsal.imds", "rehearsal.provider"),
        *("infra.naming", "launch.remote.base.files", "rehearsal.blobs", "rehearsal.vms"),
    },
    "rehearsal.blobs": {
        *("rehearsal.arm.auth", "rehearsal.arm.core", "rehearsal.arm.network", "rehearsal.arm.services"),
        *("rehearsal.arm.storage", "rehearsal.azurite", "rehearsal.faults", "rehearsal.imds"),
        *("rehearsal.listener", "rehearsal.vms.api"),
    },
    "rehearsal.arm": {
        *("rehearsal", *_ARM_ROOMS, "rehearsal.arm.core", "rehearsal.arm.resource_types"),
        *("rehearsal.arm.services", "rehearsal.imds.tokens", "rehearsal.vms.api"),
    },
    "rehearsal.arm.core": {"catalogue", "infra.naming", "rehearsal.vms.api"},
    "rehearsal.arm.resource_types": {*_ARM_ROOMS, "rehearsal.arm.core"},
    "rehearsal.arm.services": {
        *("rehearsal.arm.core", "rehearsal.arm.network.nat_rules", "rehearsal.arm.offers"),
        *("rehearsal.arm.storage.blobs", "rehearsal.imds", "rehearsal.vms.api"),
    },
    "rehearsal.arm.monitor": {
        *(
            "rehearsal.arm.auth.roles",
            "rehearsal.arm.core",
            "rehearsal.arm.services",
            "rehearsal.imds.tokens",
        ),
    },
    "rehearsal.arm.auth": {"rehearsal.arm.core", "rehearsal.arm.services", "rehearsal.imds.tokens"},
    "rehearsal.arm.network": {
        *("rehearsal.arm.core", "rehearsal.arm.services", "rehearsal.arm.storage.accounts"),
        "rehearsal.vms.api",
    },
    "rehearsal.arm.offers": {"catalogue", "infra.naming", "rehearsal.arm.core"},
    "rehearsal.arm.storage": {"rehearsal.arm.core", "rehearsal.arm.services"},
    "rehearsal.arm.compute": {
        *("rehearsal.arm.auth", "rehearsal.arm.core", "rehearsal.arm.network", "rehearsal.arm.services"),
        *("rehearsal.imds.termination", "rehearsal.vms.api"),
    },
    "rehearsal.faults": {
        *("rehearsal.arm.auth", "rehearsal.arm.compute.scale_set_vms", "rehearsal.arm.core"),
        *("rehearsal.arm.offers.market", "rehearsal.arm.resource_types", "rehearsal.arm.services"),
        *("rehearsal.hardware", "rehearsal.vms.api"),
    },
    "rehearsal.imds": {
        *("rehearsal.arm.auth.identities", "rehearsal.arm.core", "rehearsal.arm.services", "rehearsal.vms"),
        "rehearsal.arm.monitor.ingestion",
    },
    "rehearsal.provider": {
        *("rehearsal.arm.core", "rehearsal.arm.resource_types", "rehearsal.listener", "rehearsal.run_dir"),
    },
    "rehearsal.hardware": {"catalogue", "rehearsal.node_files"},
    "rehearsal.vms": {"rehearsal.callers", "rehearsal.hardware", "rehearsal.listener", "rehearsal.run_dir"},
    "infra": {
        *("catalogue", "images", "launch.remote.base"),
        *("infra.arm", "infra.cluster", "infra.config", "infra.preflight"),
    },
    "infra.arm": {"infra.config"},
    "infra.stored_providers": {"infra.cluster.keys", "infra.cluster.teardown_report"},
    "infra.config": {"catalogue", "images", "infra.naming", "infra.cluster.shared.registry", "launch.data"},
    "infra.preflight": {"images", "infra", "infra.arm", "infra.cluster.shared.registry", "infra.config"},
    "infra.cluster": {
        *("catalogue", "images", "infra.naming", "infra.arm", "infra.cluster.shared", "infra.config"),
        "infra.preflight",
    },
    "infra.cluster.shared": {"images", "infra.cluster", "infra.config", "infra.preflight.meters"},
    "images": {"catalogue", "launch.remote.agent.entry"},
    "catalogue": set(),
    "launch": {"launch.remote.base"},
    "launch.promise": {"catalogue", "launch.remote.base"},
    "launch.azureml": {
        *("launch", "launch.data", "launch.job", "launch.launchers.shell_line", "launch.results"),
    },
    "launch.azureml.scripts": {"launch", "launch.azureml"},
    "launch.client": {
        *("launch", "launch.code", "launch.job", "launch.remote", "launch.remote.base"),
        *("launch.remote.data.stage_request", "launch.remote.environment.request", "launch.remote.log"),
        *("launch.remote.debug.debug_records", "launch.remote.hangs", "launch.remote.store"),
        "launch.remote.sample",
    },
    "launch.code": {"launch", "launch.remote.base", "launch.remote.store", "launch.results.layout"},
    "launch.data": {"launch", "launch.remote.base", "launch.remote.data.stage_request"},
    "launch.environment": {
        *("launch", "launch.remote.base", "launch.remote.environment.dockerfile"),
        *("launch.remote.environment.image_reference", "launch.remote.environment.request"),
    },
    "launch.health": {"catalogue", "launch", "launch.code", "launch.job", "launch.remote.probe"},
    "launch.job": {
        *("catalogue", "launch", "launch.environment", "launch.launchers", "launch.remote.base"),
        *("launch.promise", "launch.remote.agent.entry", "launch.remote.mpi", "launch.remote.node"),
    },
    "launch.jobfile": {
        *("launch", "launch.data", "launch.environment", "launch.job", "launch.launchers"),
        *("launch.remote.base", "launch.remote.mpi"),
    },
    "launch.launchers": {"launch", "launch.job.rank_env", "launch.remote.base", "launch.remote.mpi"},
    "launch.report": {
        *(
            "launch",
            "launch.client",
            "launch.remote.base",
            "launch.remote.head.query",
            "launch.remote.metrics.job_cost",
            "launch.remote.sample",
        ),
    },
    "launch.results": {"launch", "launch.client", "launch.remote.base", "launch.remote.collect"},
    "launch.scaling": {"launch", "launch.remote.base", "launch.remote.lines"},
    "launch.remote": _NODE_CODE,
    "launch.remote.base": set(),
    "launch.remote.data": {
        *("launch.remote.agent.identity_token", "launch.remote.base", "launch.remote.store"),
        *("launch.remote.node.slots", "launch.remote.node.work_dir"),
    },
    "launch.remote.environment": {
        *("launch.remote.agent.identity_token", "launch.remote.base", "launch.remote.environment.conda"),
        "launch.remote.store",
    },
    "launch.remote.environment.conda": {"launch.remote.base", "launch.remote.environment"},
    "launch.remote.head": {
        "launch.remote.descent",
        *("launch.remote.base", "launch.remote.head.runners", "launch.remote.log", "launch.remote.mpi"),
        *("launch.remote.data", "launch.remote.debug", "launch.remote.node.runtimes", "launch.remote.probe"),
        *("launch.remote.sample", "launch.remote.store", "launch.remote.node.slots"),
    },
    "launch.remote.head.runners": {"launch.remote.base", "launch.remote.log", "launch.remote.mpi"},
    "launch.remote.metrics": {
        *("launch.remote.agent.activity", "launch.remote.agent.identity_token", "launch.remote.agent.imds"),
        "launch.remote.sample",
    },
    "launch.remote.debug": {
        *("launch.remote.base", "launch.remote.hangs", "launch.remote.head", "launch.remote.head.runners"),
        *("launch.remote.health", "launch.remote.log"),
    },
    "launch.remote.hangs": {"launch.remote.base", "launch.remote.debug"},
    "launch.remote.node": {
        *("launch.remote.descent", "launch.remote.probe.network_mark"),
        *("launch.remote.base", "launch.remote.debug.debug_child", "launch.remote.debug.dump_lines"),
        *("launch.remote.node.runtimes", "launch.remote.sample"),
        *("launch.remote.agent.entry", "launch.remote.agent.identity_token", "launch.remote.agent.imds"),
    },
    "launch.remote.sample": {
        *("launch.remote.base", "launch.remote.health.nvml_library", "launch.remote.health.sysfs"),
        "launch.remote.lines",
    },
    "launch.remote.probe": {"launch.remote.base", "launch.remote.log", "launch.remote.mpi"},
    "launch.remote.node.runtimes": {"launch.remote.base", "launch.remote.mpi", "launch.remote.node"},
    "launch.remote.collect": {
        *("launch.remote.base", "launch.remote.head.runners.node_command", "launch.remote.node.work_dir"),
    },
    **{
        f"launch.remote.{room}": {"launch.remote.base"} for room in ("agent", "health", "lines", "log", "mpi")
    },
    "launch.remote.store": {"launch.remote.base", "launch.remote.node.slots"},
}
"""Beside itself and ``FOR_ALL``, what a package may import: the longest name that fits a module counts, and a
name here does not stand for the rooms inside it."""
