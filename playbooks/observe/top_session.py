"""The screen of ``top`` from its first line to its last: keys, samples and the terminal brought together."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from infra.inventory import Inventory
from launch.client.events import JobState
from playbooks.cli.signals import attached
from playbooks.cli.terminal import FullScreen, full_screen
from playbooks.observe.top_feed import Feed, JobsList
from playbooks.observe.top_screen import Screen, draw
from playbooks.observe.top_view import Keys, View, press
from playbooks.project import Stack

__all__ = ["watch_on_terminal"]

_TICK_S = 1.0
"""Longest pause between two drawings: ages and silences grow."""
_LEAST_S = 0.05
"""Shortest pause between two drawings."""
_ESC_S = 0.05
"""Wait for what follows ESC in a key's sequence."""


class _Hangup(Exception):
    """The terminal has gone."""


class _Wakeup:
    """A pipe by which other threads and signal handlers end a wait."""

    def __init__(self) -> None:
        self.fd, self._end = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._end, False)

    def wake(self) -> None:
        with suppress(OSError):  # full: the wait ends anyway; closed: nobody waits
            os.write(self._end, b"!")

    def clear(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self.fd, 4096):
                pass


def watch_on_terminal(stack: Stack, inventory: Inventory, job: str, jobs: Sequence[JobState] | None) -> None:
    """Show the job on the terminal until the user quits; ``jobs`` are those known to have not ended.

    Raises the error that ends the reading of a job's samples. A signal ends the command with 128+n.
    """
    wakeup = _Wakeup()
    with (
        attached(lambda _: "jobs are not affected"),
        full_screen(wakeup.wake) as screen,
    ):
        session = _Session(stack, inventory, job, jobs, screen, wakeup)
        try:
            session.run()
        except _Hangup:
            os.kill(os.getpid(), signal.SIGHUP)
        finally:
            session.close()


class _Session:
    def __init__(
        self,
        stack: Stack,
        inventory: Inventory,
        job: str,
        jobs: Sequence[JobState] | None,
        screen: FullScreen,
        wakeup: _Wakeup,
    ) -> None:
        self._stack, self._inventory = stack, inventory
        self._screen, self._wakeup = screen, wakeup
        self._keys = Keys()
        self._view = View()
        self._listed = JobsList(stack, inventory, jobs, wakeup.wake)
        self._feed = Feed(stack, inventory, job, wakeup.wake)

    def close(self) -> None:
        self._feed.close()
        self._listed.close()

    def run(self) -> None:
        """Draw, wait, take keys, until the user quits."""
        drawn = self._draw()
        while True:
            wait = _ESC_S if self._keys.is_waiting else _TICK_S
            ready, _, _ = select.select([0, self._wakeup.fd], [], [], wait)
            self._wakeup.clear()
            keys = self._keys.feed(_typed()) if 0 in ready else []
            if not ready:
                keys += self._keys.rest()
            for key in keys:
                if key == "q":
                    return
                self._press(key, drawn)
                drawn = self._draw() if len(keys) > 1 else drawn
            now = time.monotonic()
            self._feed.check(now)
            if (error := self._feed.news.error) is not None:
                raise error
            drawn = self._draw()
            if not keys:
                time.sleep(_LEAST_S)

    def _draw(self) -> Screen:
        news = self._feed.news
        link = news.link(time.monotonic())
        made = draw(news.rows, self._jobs(), self._feed.job, self._view, link, self._screen.size)
        self._view = made.view
        self._screen.draw(made.lines)
        return made

    def _press(self, key: str, drawn: Screen) -> None:
        if key == "redraw":
            self._screen.forget()
        elif key in ("tab", "shift tab") or key.isdigit():
            self._choose(key)
        else:
            self._view = press(
                self._view, key, rows=drawn.rows, height=drawn.height, with_ranks=drawn.with_ranks
            )

    def _choose(self, key: str) -> None:
        names = [state.job for state in self._jobs()]
        if key.isdigit():
            place = int(key) - 1
        else:
            at = names.index(self._feed.job) if self._feed.job in names else -1
            place = (at + (1 if key == "tab" else -1)) % max(1, len(names))
        if 0 <= place < len(names) and names[place] != self._feed.job:
            self._feed.close()
            self._feed = Feed(self._stack, self._inventory, names[place], self._wakeup.wake)
            self._view = replace(self._view, first=0)

    def _jobs(self) -> list[JobState]:
        """Return the jobs that keys choose, oldest first: that on the screen, and all that have not ended."""
        news = self._feed.news
        found = {state.job: state for state in (*self._listed.jobs, *news.jobs)}
        if news.rows is not None:
            found[news.rows.job.job] = news.rows.job
        return sorted(found.values(), key=lambda state: state.created)


def _typed() -> bytes:
    """Return what was typed. Raises :class:`_Hangup` when the terminal has gone."""
    try:
        data = os.read(0, 1024)
    except OSError:
        data = b""
    if not data:
        raise _Hangup
    return data
