"""The job whose ranks hang as a file orders: what runs on the nodes."""

from __future__ import annotations

__all__ = ["HANGS", "SCRIPT", "WAYS"]

WAYS = ("missing", "lock", "loader", "mismatch", "stopped", "kernel", "slow", "network")
HANGS = {
    **dict.fromkeys(("missing", "lock", "loader"), "missing-rank"),
    "mismatch": "mismatched-collective",
    "stopped": "stopped",
    "kernel": "kernel",
    "slow": "slow",
    "network": "dead-network",
}
"""The verdict's kind for each way."""
SCRIPT = f"""\
import os, random, signal, sys, threading, time

JOB, WAYS = os.environ["RANKLIFT_JOB_ID"], {WAYS!r}
BASE = 100_000


class Gloo:
    def __init__(self):
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.torch, self.dist, self.other = torch, dist, dist.new_group()
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def add_up(self, value):
        values = self.torch.tensor([value])
        self.dist.all_reduce(values)
        return int(values)

    def exchange(self):
        values = self.torch.zeros(self.size)
        self.dist.all_to_all_single(self.torch.zeros(self.size), values)

    def meet(self):
        self.dist.barrier(group=self.other)


class Mpi:
    def __init__(self):
        from mpi4py import MPI

        self.world = MPI.COMM_WORLD
        self.other = self.world.Dup()
        self.rank, self.size = self.world.Get_rank(), self.world.Get_size()

    def add_up(self, value):
        return self.world.allreduce(value)

    def exchange(self):
        self.world.alltoall([0] * self.size)

    def meet(self):
        self.other.Barrier()


def main(flavour):
    give_way()
    world = Gloo() if flavour == "gloo" else Mpi()
    number = 0
    while True:
        play(world, number, *divmod(world.add_up(order(number) if world.rank == 0 else 0), BASE))
        number += 1


def give_way():
    # The ranks of a rehearsed cluster share this machine's processors, and those of MPIs wait for each other
    # without a pause: whatever else runs comes first, for a node has processors for its ranks and others for
    # what looks at them. A policy counts within a session alone where the kernel shares processors out by
    # sessions, and each MPI rank has one of its own. A session's weight can be changed once in 0.1 s on the
    # whole machine (sched(7), "The autogroup feature"; kernel/sched/autogroup.c).
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    session = "/proc/self/autogroup"
    while os.path.exists(session):
        with open(session) as file:
            if file.read().endswith("nice 19\\n"):
                return
        try:
            with open(session, "w") as file:
                file.write("19")
        except BlockingIOError:
            time.sleep(random.uniform(0.1, 1))


def order(number):
    path = f"/tmp/{{JOB}}-{{number}}.order"
    wait_for(path)
    with open(path) as file:
        way, culprit = file.read().split()
    return WAYS.index(way) * BASE + int(culprit)


def play(world, number, way, culprit):
    way, is_mine = WAYS[way], world.rank == culprit
    begun, go = f"/tmp/{{JOB}}-{{number}}.begun", f"/tmp/{{JOB}}-{{number}}.go"
    if is_mine:
        with open(begun, "w") as file:
            file.write(str(os.getpid()))
    if way == "slow":
        while not world.add_up(int(is_mine and os.path.exists(go))):
            if is_mine:
                compute(0.5)
    elif way == "network":
        while not world.add_up(int(is_mine and os.path.exists(go))):
            world.exchange()
            time.sleep(0.02)
    elif way == "mismatch":
        if is_mine:
            world.meet()
        else:
            threading.Thread(target=follow, args=(world, go)).start()
        world.add_up(0)
    else:
        if is_mine:
            globals()[way](go)
        world.add_up(0)


def follow(world, go):
    wait_for(go)
    world.meet()


def missing(go):
    while not os.path.exists(go):
        compute(0.1)


def lock(go):
    held = threading.Lock()
    held.acquire()
    threading.Thread(target=release, args=(held, go)).start()
    held.acquire()


def release(held, go):
    wait_for(go)
    held.release()


def loader(go):
    from torch.utils.data import DataLoader, Dataset

    class Late(Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            wait_for(go)
            return index

    for batch in DataLoader(Late(), num_workers=1):
        pass


def stopped(go):
    os.kill(os.getpid(), signal.SIGSTOP)


def kernel(go):
    # The new process opens a pipe that nobody writes to, before it executes anything: until then the kernel
    # keeps its parent waiting, uninterruptibly (vfork(2)).
    os.mkfifo(go + ".fifo")
    opens = (os.POSIX_SPAWN_OPEN, 0, go + ".fifo", os.O_RDONLY, 0)
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {{}}, file_actions=[opens]), 0)


def compute(seconds):
    time.sleep(seconds)


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.05)


main(sys.argv[1])
"""
