"""Ctrl-C where no task of ours is there to say a word: while tasks are made, and in the user's own."""

from __future__ import annotations

from pathlib import Path

from tests.playbooks.typed import fab, interrupted


def test_ctrl_c_while_the_tasks_are_made_ends_with_130_and_no_traceback(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    (tmp_path / "fabfile.py").write_text(
        "from playbooks import ns\nimport pathlib, time\n"
        f"pathlib.Path({str(begun)!r}).touch()\n"
        "try:\n    time.sleep(30)\nexcept BaseException:\n    time.sleep(30)\n"
    )
    assert interrupted(tmp_path, "status", begun=begun) == (130, "interrupted\n")


def test_ctrl_c_in_a_task_of_the_users_own_ends_alike_once_it_has_tidied_up(tmp_path: Path) -> None:
    (tmp_path / "fabfile.py").write_text(
        "import signal\nfrom invoke import task\nfrom playbooks import ns\n"
        "@task\ndef own(context):\n"
        "    try:\n        signal.raise_signal(signal.SIGINT)\n"
        "    finally:\n        print('tidied up')\n"
        "ns.add_task(own)\n"
    )
    told = fab(tmp_path, "own")
    assert (told.returncode, told.stdout, told.stderr) == (130, "tidied up\n", "interrupted\n")
