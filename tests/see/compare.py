"""Run on a busy node: Debian's node exporter beside this node's own metrics.

Arguments: the exporter's port, the address of the metrics, the node's name, an address to send to. Prints as
JSON, by figure, the mean of our samples, and the exporter's over the same seconds.
"""

import json
import re
import socket
import subprocess
import sys
import time
import urllib.request

SECONDS, WARM_S = 12, 3
RATE, PIECE = 8_000_000, 1_400


def read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=5) as answer:
        return str(answer.read().decode())


def value(text: str, name: str, **labels: str) -> float:
    found = 0.0
    for line in text.splitlines():
        if re.match(rf"{name}[{{ ]", line) and all(f'{key}="{its}"' in line for key, its in labels.items()):
            found += float(line.rpartition(" ")[2])
    return found


def sent(text: str, way: str) -> float:
    name = f"node_network_{way}_bytes_total"
    return value(text, name) - value(text, name, device="lo")


def idle(text: str) -> float:
    return value(text, "node_cpu_seconds_total", mode="idle") + value(
        text, "node_cpu_seconds_total", mode="iowait"
    )


def main(port: str, own: str, node: str, peer: str) -> None:
    exporter = subprocess.Popen(
        ["prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    names = {
        "cpu": "ranklift_node_cpu_ratio",
        "memory": "ranklift_node_memory_used_bytes",
        "memory_size": "ranklift_node_memory_size_bytes",
        "received": "ranklift_node_network_receive_bytes_per_second",
        "sent": "ranklift_node_network_transmit_bytes_per_second",
    }
    ours = {figure: [] for figure in names}  # type: dict[str, list[float]]
    try:
        began = time.monotonic()
        link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        before = (0.0, "")
        pieces, due = 0, began + WARM_S
        while time.monotonic() - began < WARM_S + SECONDS:
            link.sendto(bytes(PIECE), (peer, 9))
            pieces += 1
            now = time.monotonic()
            if now > due:
                due += 1.0
                if not before[1]:
                    before = (now, read(f"http://127.0.0.1:{port}/metrics"))
                else:
                    text = read(f"http://{own}/metrics")
                    for figure, name in names.items():
                        ours[figure].append(value(text, name, node=node))
            ahead = pieces * PIECE / RATE - (now - began)
            if ahead > 0.01:
                time.sleep(ahead)
        after = (time.monotonic(), read(f"http://127.0.0.1:{port}/metrics"))
    finally:
        exporter.terminate()
        exporter.wait(20)
    took = after[0] - before[0]
    processors = len(set(re.findall(r'node_cpu_seconds_total\{cpu="(\d+)"', after[1])))
    theirs = {
        "cpu": 1 - (idle(after[1]) - idle(before[1])) / (took * processors),
        "memory": value(after[1], "node_memory_MemTotal_bytes")
        - value(after[1], "node_memory_MemAvailable_bytes"),
        "memory_size": value(after[1], "node_memory_MemTotal_bytes"),
        "received": (sent(after[1], "receive") - sent(before[1], "receive")) / took,
        "sent": (sent(after[1], "transmit") - sent(before[1], "transmit")) / took,
    }
    means = {figure: sum(values) / len(values) for figure, values in ours.items()}
    json.dump({"ours": means, "theirs": theirs, "samples": len(ours["cpu"])}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
