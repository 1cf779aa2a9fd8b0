"""What a node keeps of its ranks."""

from __future__ import annotations

import json
import os
from pathlib import Path

from launch.remote.base.records import NodeExit
from launch.remote.node import loop


def test_the_line_of_an_exit_is_the_record_that_its_type_describes(tmp_path: Path) -> None:
    handle = os.open(tmp_path / "exits.jsonl", os.O_WRONLY | os.O_CREAT)
    loop.write_exit(handle, 3, 137, stopped=True)
    os.close(handle)
    written = json.loads((tmp_path / "exits.jsonl").read_text())
    assert set(written) == set(NodeExit.__annotations__)
    assert (written["rank"], written["status"], written["stopped"]) == (3, 137, True)
