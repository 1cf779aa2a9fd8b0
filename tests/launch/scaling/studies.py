"""Measurements that tests make up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from launch.scaling.metric_numbers import Figures
from launch.scaling.point_transport import Transport
from launch.scaling.scaling_plan import Mode, Run, ScalingPlan
from launch.scaling.scaling_study import MeasuredRun, Study, Subject

__all__ = ["INFINIBAND", "PLAN", "SUBJECT", "TCP", "amdahl", "study"]

PLAN = ScalingPlan((1, 2, 4), 3, "weak", 0, "samples_per_s", "([0-9]+) samples/s", "job")
SUBJECT = Subject(
    job_file="job.yml",
    name="train",
    fingerprint="0123456789abcdef",
    stack="dev",
    size="Standard_ND40rs_v2",
    rehearsed=False,
    nodes=("node000000", "node000001", "node000002", "node000003"),
)
INFINIBAND = Transport("proven", "InfiniBand, 1 HCA a node", "as its ranks print")
TCP = Transport("refused", "TCP", "NCCL uses eth0")


def study(
    values: Mapping[int, Sequence[float]],
    mode: Mode = "weak",
    transports: Mapping[int, Transport] | None = None,
    subject: Subject = SUBJECT,
) -> Study:
    """A measurement with these throughputs by number of nodes, of 8 ranks a node."""
    plan = replace(PLAN, counts=tuple(sorted(values)), mode=mode, repeats=max(map(len, values.values())))
    made = Study(plan, subject)
    for nodes, of_nodes in values.items():
        default = Transport("none", "", "one node") if nodes == 1 else INFINIBAND
        for repeat, value in enumerate(of_nodes):
            figures = Figures(8 * nodes, {0: (value,)}, 0)
            transport = (transports or {}).get(nodes, default)
            run = Run(repeat, nodes)
            made = made.with_run(MeasuredRun(run, f"train-{nodes}-{repeat}", 1.0, 9.0, figures, transport))
    return made


def amdahl(fraction: float, nodes: int) -> float:
    """The speed on that many nodes of work with a serial fraction, 1 on one."""
    return 1 / (fraction + (1 - fraction) / nodes)
