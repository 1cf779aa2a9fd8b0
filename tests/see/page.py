"""Run on a node: prints the text at an address as JSON. Standard library alone."""

import json
import sys
import urllib.request


def main(address: str) -> None:
    with urllib.request.urlopen(address, timeout=30) as answer:
        json.dump(answer.read().decode(), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
