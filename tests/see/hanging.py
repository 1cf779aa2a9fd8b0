"""Scripts whose ranks hang, each in its way, once all of them have begun."""

from __future__ import annotations

__all__ = ["GLOO", "MPI"]

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
