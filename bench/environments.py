"""What a job's packages cost, made once and spread, beside every node that installs them for itself.

The first launch of a job with 108 MB of packages, whole, on 1 to 64 nodes that have none of them, and one
``uv pip install`` on each node at once, from an index that counts what is taken from it: once as fast as this
machine is, once with all that it sends shaped to :data:`RATE` (``tc tbf`` on the network's bridge). Every
node has uv before. More than :data:`MOST_EACH` nodes do not install side by side: 64 of them took two cores
and one disk more than three minutes.

Then launches on 4 nodes that have all they need: bare, with packages, and in a container of Charliecloud.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.cluster import ROOT, Bench, rehearsal, roomy
from bench.package_index import PROJECTS, PackageIndex, package_index
from bench.report import Claim, median, save, table
from launch.remote.environment.uv import VERSION

__all__ = ["main"]

COUNTS = (1, 4, 16, 64)
MOST_EACH = 16
RATE = 200
"""Mbit/s of the shaped link."""
STARTS_ON, ROUNDS = 4, 5
MORE_BYTES, HALF, AGAIN_S = 1.01, 0.5, 1.0
_ROOM_GB = 0.15
"""Disk of a node: the packages, compiled."""
_UV = f".ranklift/tools/uv-{VERSION}/uv"
BARE, PACKAGES, CONTAINER = "bare", "with packages", "in a container"


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds and bytes of one number of nodes on one link."""

    nodes: int
    link: str
    once_s: float
    once_bytes: int
    each_s: float | None
    """None for more than :data:`MOST_EACH` nodes, as ``each_bytes``."""
    each_bytes: int | None


def main() -> int:
    """Measures, prints and saves; exit status 1 when a figure is missed."""
    uv = shutil.which("uv")
    if uv is None:
        raise RuntimeError("uv is not on PATH: put .venv/bin first")
    rounds: list[Round] = []
    starts: dict[str, list[float]] = {}
    with package_index(Path(uv)) as index, rehearsal(roomy(COUNTS[-1] * _ROOM_GB), bare=True) as bench:
        lines = [f"--index-url {index.url}", *PROJECTS]
        (bench.folder / "requirements.txt").write_text("\n".join([*lines, ""]))
        (bench.folder / "code").mkdir()
        (bench.folder / "code" / "README").write_text("pushed before\n")
        for count in COUNTS:
            bench.nodes(count)
            _give_uv(bench, index)
            bench.fab("launch.torch", "hostname", "--source", "code")
            if count == STARTS_ON:
                starts = measure_starts(bench, index)
            rounds.append(measure(bench, index, count, "unshaped"))
            with shaped(bench, index):
                rounds.append(measure(bench, index, count, f"{RATE} Mbit/s"))
    columns = ("nodes", "link", "made once, s", "MB", "each for itself, s", "MB", "once / each")
    rows = [(one.nodes, one.link, one.once_s, one.once_bytes / 1e6, *_beside(one)) for one in rounds]
    table("Packages of a job, from an index to every node", columns, rows)
    medians = {name: median(seconds) for name, seconds in starts.items()}
    table(f"Launches on {STARTS_ON} nodes that have all they need", ("", "median, s"), list(medians.items()))
    figures = {"rounds": [asdict(one) for one in rounds], "starts_s": starts}
    return save("environments", figures, claims_of(rounds, medians))


def claims_of(rounds: list[Round], starts: Mapping[str, float]) -> list[Claim]:
    """The promised figures."""
    least = next(one.once_bytes for one in rounds if one.nodes == 1)
    claims = [
        Claim(f"{one.nodes} nodes, {one.link}: bytes from the index", one.once_bytes / least, MORE_BYTES, "x")
        for one in rounds
    ]
    (shaped_one,) = (one for one in rounds if one.nodes == MOST_EACH and one.link != "unshaped")
    if shaped_one.each_s is None:
        raise ValueError(f"{MOST_EACH} nodes did not install side by side")
    ratio = shaped_one.once_s / shaped_one.each_s
    claims.append(Claim(f"{MOST_EACH} nodes, {shaped_one.link}: once beside each", ratio, HALF, "x"))
    more = starts[PACKAGES] - starts[BARE]
    claims.append(Claim("second launch with packages over a bare one", more, AGAIN_S))
    return claims


def _beside(one: Round) -> tuple[object, ...]:
    """The cells of a row about nodes that install side by side."""
    if one.each_s is None or one.each_bytes is None:
        return "-", "-", "-"
    return one.each_s, one.each_bytes / 1e6, one.once_s / one.each_s


def measure(bench: Bench, index: PackageIndex, count: int, link: str) -> Round:
    """Both ways, from nothing."""
    index.taken()
    once = bench.fab("launch.torch", "hostname", "--source", "code", "--requirements", "requirements.txt")
    once_bytes = index.taken()
    _remove_environments(bench)
    missing = [node for node in bench.names() if node not in once.stdout]
    if missing:
        raise RuntimeError(f"no rank on {', '.join(missing)}")
    if count > MOST_EACH:
        return Round(count, link, once.seconds, once_bytes, None, None)
    return Round(count, link, once.seconds, once_bytes, *install_on_each(bench, index, count))


def install_on_each(bench: Bench, index: PackageIndex, count: int) -> tuple[float, int]:
    """Seconds and bytes until every node has installed the packages for itself."""
    install = [_UV, "pip", "install", "--quiet", "--compile-bytecode", "--default-index", index.url]
    line = (
        "export UV_CACHE_DIR=$HOME/own/cache UV_LINK_MODE=hardlink && "
        f"{_UV} venv --quiet --no-project own/packages && "
        f"{shlex.join([*install, '--python', 'own/packages/bin/python', *PROJECTS])} && "
        f"own/packages/bin/python -c 'import {', '.join(PROJECTS)}; print(\"installed\")'"
    )
    each = bench.fab("exec", "--fanout", str(count), "--json", line)
    taken = index.taken()
    if each.stdout.count("installed\\n") != count:
        raise RuntimeError(f"not every node has the packages:\n{each.stdout}")
    bench.fab("exec", "rm -rf own")
    return each.seconds, taken


def measure_starts(bench: Bench, index: PackageIndex) -> dict[str, list[float]]:
    """Seconds of launches in turn, after a round that makes what they need."""
    options = {
        BARE: [],
        PACKAGES: ["--requirements", "requirements.txt"],
        CONTAINER: ["--image", index.image, "--runtime", "charliecloud"],
    }
    runs: dict[str, list[float]] = {name: [] for name in options}
    for attempt in range(ROUNDS + 1):
        for name, words in options.items():
            ran = bench.fab("launch.torch", "--source", "code", *words, "--", "sh", "-c", "echo started")
            if ran.stdout.count("started") != STARTS_ON:
                raise RuntimeError(f"{name}: not every rank started:\n{ran.stdout}")
            if attempt:
                runs[name].append(ran.seconds)
    _remove_environments(bench)
    return runs


def _remove_environments(bench: Bench) -> None:
    """Leave nothing that the next launch could use."""
    for held in bench.fab("environment", "--json").json():
        bench.fab("environment.rm", held["id"])
    bench.fab("exec", "rm -rf .ranklift/cache")


def _give_uv(bench: Bench, index: PackageIndex) -> None:
    """Give every node the program, so that neither way downloads it."""
    fetch = f"import urllib.request as r; r.urlretrieve('http://{index.address}/uv', '{_UV}')"
    folder = _UV.rpartition("/")[0]
    bench.fab("exec", f'test -x {_UV} || (mkdir -p {folder} && python3 -c "{fetch}" && chmod +x {_UV})')


@contextmanager
def shaped(bench: Bench, index: PackageIndex) -> Iterator[None]:
    """Limits what the index sends; what the nodes send each other passes beside it.

    The queue holds what is under way of all connections: a dropped packet costs a connection of the rehearsed
    NAT gateway much more than one on a real link.
    """
    tc = [*_enter_network(bench), "/usr/sbin/tc"]
    host = index.address.partition(":")[0]
    for line in (
        "qdisc add dev br0 root handle 1: htb default 2 r2q 100000",
        "class add dev br0 parent 1: classid 1:1 htb rate 100gbit",
        "class add dev br0 parent 1: classid 1:2 htb rate 100gbit",
        f"qdisc add dev br0 parent 1:1 tbf rate {RATE}mbit burst 256kb limit 256mb",
        f"filter add dev br0 parent 1: protocol ip u32 match ip src {host}/32 flowid 1:1",
    ):
        subprocess.run([*tc, *line.split()], check=True)
    try:
        yield
    finally:
        subprocess.run([*tc, "qdisc", "del", "dev", "br0", "root"], check=True)


def _enter_network(bench: Bench) -> list[str]:
    """The beginning of a command line inside the bench's network."""
    networks = bench.fab("rehearsal.status", "--json").json()["networks"]
    (inside,) = (its["user_namespace"] for its in networks.values())
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if (
                words[1:3] == [b"-m", b"rehearsal.vms.netns"]
                and str((entry / "ns/user").readlink()) == inside
            ):
                return [sys.executable, "-I", "-S", str(ROOT / "bench" / "in_network.py"), entry.name]
        except OSError:
            continue
    raise RuntimeError("the network's process is not found")


if __name__ == "__main__":
    sys.exit(main())
