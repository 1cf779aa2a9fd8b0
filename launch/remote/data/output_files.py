"""A node's files of a job that go to storage, and what storage cannot hold."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple

from launch.remote.base.records import UploadRecord
from launch.remote.node import work_dir

__all__ = ["OutputFile", "local_files"]


class OutputFile(NamedTuple):
    """A file of an upload."""

    upload: int
    """Index of its upload."""
    path: str
    """Below the upload's folder; empty where the upload is a file."""
    place: str
    """On this node."""


def local_files(folder: str, uploads: list[UploadRecord]) -> tuple[list[OutputFile], list[str]]:
    """Return a node's files of each upload, and why others are not among them.

    An output with a place of its own is not part of the whole. Nor is what was pushed and the job left as it
    was.
    """
    own = {one["name"] for one in uploads if one["name"]}
    outputs = os.path.join(folder, "outputs")
    if os.path.islink(outputs) and os.readlink(outputs) == work_dir.OUTPUTS:
        outputs = os.path.join(folder, work_dir.OUTPUTS)
    is_copy = work_dir.copies_in(folder)
    found: list[OutputFile] = []
    skipped: list[str] = []
    for index, upload in enumerate(uploads):
        unread: list[OSError] = []
        if upload["name"]:
            tops = {"": os.path.join(outputs, upload["name"])}
        else:
            tops = {"logs": os.path.join(folder, "logs"), "outputs": outputs}
        for prefix, top in tops.items():
            for place in _walk(top, unread):
                path = os.path.join(prefix, os.path.relpath(place, top)) if place != top else prefix
                parts = path.split("/")
                if not upload["name"] and parts[0] == "outputs" and own & set(parts[1:2]):
                    continue
                if _is_pushed(place, outputs, is_copy):
                    continue
                problem = _problem(place, path)
                if problem:
                    skipped.append(f"{path or upload['name']}: {problem}")
                else:
                    found.append(OutputFile(index, path, place))
        for one in unread:
            if one.errno != errno.ENOENT:  # a job that runs removes its old checkpoints
                skipped.append(f"{os.path.relpath(one.filename, folder)}: {one.strerror}")
    return found, skipped


def _walk(top: str, unread: list[OSError]) -> Iterator[str]:
    """Yield what is not a folder at or below ``top``; add to ``unread`` what cannot be listed."""
    if os.path.lexists(top) and not (os.path.isdir(top) and not os.path.islink(top)):
        yield top
        return
    for folder, folders, files in os.walk(top, onerror=unread.append):
        for name in sorted(files):
            yield os.path.join(folder, name)
        for name in sorted(folders):
            if os.path.islink(os.path.join(folder, name)):
                yield os.path.join(folder, name)
        folders.sort()


def _is_pushed(place: str, outputs: str, is_copy: Callable[[str, os.stat_result], bool]) -> bool:
    """Return whether a file below the job's outputs is part of the pushed code."""
    try:
        return is_copy(f"/outputs/{os.path.relpath(place, outputs)}", os.lstat(place))
    except OSError:
        return False


def _problem(place: str, path: str) -> str:
    try:
        mode = os.lstat(place).st_mode
    except OSError as error:
        return error.strerror or str(error)
    if stat.S_ISLNK(mode):
        return "is a link, which storage does not have"
    if not stat.S_ISREG(mode):
        return "is a socket, a pipe or a device"
    try:
        path.encode()
    except UnicodeEncodeError:
        return "has a name that is not UTF-8, which storage does not take"
    # learn.microsoft.com rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata
    if "\\" in path or any(part.endswith(".") for part in path.split("/")):
        return "has a backslash, or a dot at a name's end, which storage does not keep"
    return ""
