"""Scripts whose ranks hang, each in its way, once all of them have begun."""

from __future__ import annotations

__all__ = ["GLOO", "MPI", "ROUNDS", "culprit_of"]

GLOO = """\
import os, signal, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist


def train(way, culprit):
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank = dist.get_rank()
    value = torch.ones(4)
    for step in range(3):
        dist.all_reduce(value)
    print("ready", flush=True)
    if rank == culprit:
        misbehave(way, value)
    step = 3
    while True:
        dist.all_reduce(value)
        step += 1


def misbehave(way, value):
    if way == "missing":
        load_batch()
    if way == "mismatch":
        dist.broadcast(value, src=int(os.environ["RANK"]))
        dist.barrier()
    if way == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if way == "slow":
        while True:
            time.sleep(0.4)
            dist.all_reduce(value)


def load_batch():
    while True:
        time.sleep(3600)


train(sys.argv[1], int(sys.argv[2]))
"""
MPI = """\
import os, signal, sys, time
from mpi4py import MPI


def train(way, culprit):
    world = MPI.COMM_WORLD
    rank = world.Get_rank()
    for step in range(3):
        world.allreduce(1)
    print("ready", flush=True)
    if rank == culprit:
        misbehave(way, world)
    while True:
        world.allreduce(1)


def misbehave(way, world):
    if way == "missing":
        load_batch()
    if way == "mismatch":
        world.Barrier()
    if way == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if way == "slow":
        while True:
            time.sleep(0.4)
            world.allreduce(1)


def load_batch():
    while True:
        time.sleep(3600)


train(sys.argv[1], int(sys.argv[2]))
"""


def culprit_of(number: int, size: int) -> int:
    """The rank that misbehaves in a round: every rank once in as many rounds as there are ranks."""
    return (7 * number + 3) % size


ROUNDS = """\
import os, signal, sys, time


def train(way, flavour):
    rank, size, all_reduce = join(flavour)
    all_reduce()
    for number in range(10_000):
        if rank == (7 * number + 3) % size:
            print("round", number, flush=True)
            misbehave(way, f"/tmp/go-on-{os.environ['RANKLIFT_JOB_ID']}-{number}")
        all_reduce()


def join(flavour):
    if flavour == "gloo":
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        value = torch.ones(4)
        return dist.get_rank(), dist.get_world_size(), lambda: dist.all_reduce(value)
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    return world.Get_rank(), world.Get_size(), lambda: world.allreduce(1)


def misbehave(way, mark):
    if way == "stopped":
        mine = os.getpid()
        if os.fork() == 0:
            wait_for(mark)
            os.kill(mine, signal.SIGCONT)
            os._exit(0)
        os.kill(mine, signal.SIGSTOP)
        return
    wait_for(mark)


def wait_for(mark):
    while not os.path.exists(mark):
        time.sleep(0.1)


train(sys.argv[1], sys.argv[2])
"""
"""In each round another rank misbehaves, until a file says that it may go on."""
