"""Run on a node: prints the text at an address as JSON. Standard library alone."""

import json
import sys
import urllib.request

with urllib.request.urlopen(sys.argv[1], timeout=30) as answer:
    json.dump(answer.read().decode(), sys.stdout)
