# SPDX-License-Identifier: Apache-2.0
"""Folders that code is loaded from: nobody else may be able to put anything there, now or before."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

# Disks that hosts share: locks and renames there are not what compilers take them for.
NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "afs", "9p"),
        *("panfs", "wekafs", "orangefs", "pvfs2", "ocfs2", "gfs2", "virtiofs", "juicefs"),
    }
)
_TEMPORARY = re.compile(r"tmp\.pid_\d+_.*|\..*\.tmp|.*\.tmp|tmp[a-z0-9_]{8}(\..*)?")
_LEFT_OVER_AFTER = 3600.0


class CacheRefused(Exception):
    """A cache folder belongs to somebody else, or is not a folder."""


def private_folder(path: Path) -> Path:
    """Make a folder that only this user can read and write, or verify that it is one.

    Raises
    ------
    CacheRefused
        If something else stands at its place, another user owns it, or others can put another in its place.
    OSError
        If it cannot be made.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise CacheRefused(f"{path} is not a folder of its own")
    if found.st_uid != os.geteuid():
        raise CacheRefused(f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}")
    above = os.stat(path.parent)
    if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
        raise CacheRefused(f"everybody can replace {path}, since {path.parent} is open to all and not sticky")
    if stat.S_IMODE(found.st_mode) & 0o077:
        path.chmod(0o700)
    return path


def verify(path: Path) -> None:
    """Check that all that lies in a folder is this user's own, and remove what killed processes left half-written.

    Raises
    ------
    CacheRefused
        If somebody else's file or folder is there: it may have been planted while the folder was open.
    """
    me, now = os.geteuid(), time.time()
    for entry in _entries(path):
        found = entry.stat(follow_symlinks=False)
        if found.st_uid != me:
            raise CacheRefused(f"{entry.path} belongs to user {found.st_uid}, not to {me}")
        if _TEMPORARY.fullmatch(entry.name) and now - found.st_mtime > _LEFT_OVER_AFTER:
            remove(Path(entry.path))


def _entries(path: Path) -> Iterator[os.DirEntry[str]]:
    pending = [os.fspath(path)]
    while pending:
        try:
            with os.scandir(pending.pop()) as listed:
                for entry in listed:
                    try:
                        folder = entry.is_dir(follow_symlinks=False)
                        yield entry
                    except FileNotFoundError:  # another job renames and removes here
                        continue
                    if folder:
                        pending.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue


def remove(path: Path) -> None:
    """Remove a file or a folder with all that is in it; what cannot be removed stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        path.unlink()


def filesystem(path: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> str:
    """Return the type of the file system that holds a path, as the kernel names it; empty where it is not told."""
    place = Path(os.path.realpath(path))
    best, kind = -1, ""
    try:
        lines = mountinfo.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        before, _, after = line.partition(" - ")
        # Blanks in names are written in octal.
        mounted = Path(before.split()[4].replace("\\040", " "))
        if (place == mounted or mounted in place.parents) and len(mounted.parts) >= best:
            best, kind = len(mounted.parts), after.split()[0]
    return kind


def is_network(path: Path) -> bool:
    """Tell whether a path is on a disk that several hosts share."""
    kind = filesystem(path)
    return kind in NETWORK or kind.startswith("fuse.")
