"""Facts of jobs whose ranks hang, made rank by rank."""

from __future__ import annotations

from dataclasses import dataclass, field

from launch.remote.debug.debug_records import (
    Collective,
    DebugFacts,
    PortTraffic,
    ProcessFacts,
    RankFacts,
    StackFrame,
    Unsent,
)

__all__ = ["Job", "all_reduce", "broadcast", "frame", "loading", "process"]

TORCH = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
LOADER = "/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
SCRIPT = "/home/azureuser/code/train.py"


def frame(function: str, file: str = SCRIPT, line: int = 1, text: str = "") -> StackFrame:
    return {"function": function, "file": file, "line": line, "text": text}


def all_reduce(line: int = 88) -> list[StackFrame]:
    return [frame("all_reduce", TORCH, 2806), frame("main", line=line), frame("<module>", line=120)]


def broadcast(line: int = 91) -> list[StackFrame]:
    return [frame("broadcast", TORCH, 2500), frame("main", line=line), frame("<module>", line=120)]


def loading(line: int = 60) -> list[StackFrame]:
    return [frame("_next_data", LOADER, 733), frame("__next__", LOADER, 701), frame("main", line=line)]


def process(frames: list[StackFrame], pid: int = 100) -> ProcessFacts:
    return {
        "pid": pid,
        "inner_pid": pid,
        "name": "python3",
        "state": "S",
        "kernel_function": "futex_wait_queue",
        "cpu_ms": 0,
        "ended_ms": 0,
        "io": 0,
        "switches": 0,
        "received": 0,
        "threads": [{"name": "MainThread", "frames": frames}] if frames else [],
        "later": [{"frames": frames}] * 2 if frames else [],
        "problem": "",
        "unsent": [],
    }


@dataclass
class Job:
    """A job of ``ranks`` ranks, four on each node, which all wait in the same collective at first."""

    count: int
    per_node: int = 4
    facts: DebugFacts = field(init=False)
    by_rank: dict[int, RankFacts] = field(init=False)

    def __post_init__(self) -> None:
        nodes = [f"node{number:06d}" for number in range(-(-self.count // self.per_node))]
        self.by_rank = {
            rank: {"rank": rank, "processes": [process(all_reduce(), 100 + rank)], "collective": []}
            for rank in range(self.count)
        }
        self.facts = {
            "node_of": {str(rank): nodes[rank // self.per_node] for rank in range(self.count)},
            "addresses": {f"10.0.0.{4 + number}": name for number, name in enumerate(nodes)},
            "ended": {},
            "silent_s": {str(rank): 600 for rank in range(self.count)},
            "printed": [],
            "nodes": {
                name: [
                    {
                        "looked_ms": 2000,
                        "ranks": [
                            self.by_rank[rank]
                            for rank in range(
                                number * self.per_node, min(self.count, (number + 1) * self.per_node)
                            )
                        ],
                        "ports": [],
                        "gpus": [],
                        "ras": [],
                        "problems": [],
                    }
                ]
                for number, name in enumerate(nodes)
            },
            "unanswered": {},
            "unheard_s": {},
            "per_node": False,
        }

    def node(self, rank: int) -> str:
        return self.facts["node_of"][str(rank)]

    def main(self, rank: int) -> ProcessFacts:
        return self.by_rank[rank]["processes"][0]

    def puts(self, rank: int, *looks: list[StackFrame]) -> None:
        """The rank's stacks at each look; the last one stays."""
        its = self.main(rank)
        its["threads"][0]["frames"] = looks[0]
        its["later"] = [{"frames": (looks + looks[-1:] * 2)[at]} for at in (1, 2)]

    def ends(self, rank: int, status: int = 0) -> None:
        self.facts["ended"][str(rank)] = status
        for part in self.facts["nodes"][self.node(rank)]:
            part["ranks"] = [one for one in part["ranks"] if one["rank"] != rank]

    def numbers(self, rank: int, sequence: int) -> None:
        newest: Collective = {
            "sequence": sequence,
            "name": "gloo:all_reduce",
            "state": "started",
            "group": "0",
        }
        self.by_rank[rank]["collective"] = [newest]

    def repeats(self, rank: int, address: str) -> None:
        unsent: Unsent = {"address": address, "port": 5000, "bytes": 4096, "retransmits": 6}
        self.main(rank)["unsent"].append(unsent)

    def port(self, node: str, state: str) -> None:
        port: PortTraffic = {"name": "mlx5_ib0:1", "state": state, "received": 0, "sent": 0}
        self.facts["nodes"][node][0]["ports"].append(port)
