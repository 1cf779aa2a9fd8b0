"""Run on a node: a Prometheus that scrapes every node, until its queries have answers; prints these as JSON.

Arguments: the folder for its files, its port, the scraped addresses with commas between, queries. Standard
library alone: rehearsed nodes have no more.
"""

import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

LIMIT_S, UNAVAILABLE = 60, 503


def ask(base: str, query: str) -> list:  # type: ignore[type-arg]  # of JSON
    address = f"{base}/api/v1/query?query={urllib.parse.quote(query)}"
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return list(json.load(answer)["data"]["result"])
    except urllib.error.HTTPError as error:
        if error.code == UNAVAILABLE:  # it starts, and reads its own files
            return []
        raise SystemExit(f"{query}: {error.read().decode()}") from error
    except OSError:
        return []


def main(folder: str, port: str, targets: str, *queries: str) -> None:
    place = Path(folder)
    place.mkdir()
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "ranklift", "static_configs": [{"targets": targets.split(",")}]}],
    }
    (place / "prometheus.yml").write_text(json.dumps(config))  # which is YAML
    with (place / "log").open("w") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        base, until = f"http://127.0.0.1:{port}", time.monotonic() + LIMIT_S
        while True:
            found = {query: ask(base, query) for query in queries}
            if all(found.values()) or time.monotonic() > until:
                break
            time.sleep(0.5)
        json.dump(found, sys.stdout)
    finally:
        process.terminate()
        process.wait(20)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
