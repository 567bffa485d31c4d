# SPDX-License-Identifier: Apache-2.0
"""One object of a bucket into one file: resumed, verified, and under its own name only when it is whole."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import time
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from urllib3.exceptions import HTTPError

from .bucket import Asset, Bucket, DownloadError

CHUNK = 1 << 20
MAX_WAIT = 60.0
_log = logging.getLogger(__name__)


class _Hash(Protocol):
    def update(self, data: bytes) -> None: ...

    def digest(self) -> bytes: ...


def download(bucket: Bucket, asset: Asset, folder: Path) -> bool:
    """Bring an object to its place below `folder`; False if it was there already.

    A file that is there is never written to. What has arrived of another is kept beside its place, and the next call
    goes on from there.

    Raises
    ------
    DownloadError
        If another file is there, or the object does not arrive whole.
    OSError
        If the disk does not take it; what has arrived stays.
    """
    target = _target(folder, asset)
    if os.path.lexists(target):
        if not target.is_file() or target.stat().st_size != asset.size or not matches(target, asset):
            raise DownloadError(f"{target} is there and is not the file of the bucket; move it away, or choose another")
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    # Named after the generation: what has arrived of an object that has changed since is no part of the new one.
    part = target.with_name(f".{target.name}.{asset.generation}.part")
    with open(part, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DownloadError(f"another process downloads {target}; wait for it, or end it") from None
        _fill(bucket, asset, file, part)
        file.flush()
        os.fsync(file.fileno())
        _publish(part, target)
    return True


def matches(path: Path, asset: Asset) -> bool:
    """Whether a file has the bytes that the bucket recorded the hash of."""
    expected, hasher = _expected(asset)
    with open(path, "rb") as file:
        while data := file.read(CHUNK):
            hasher.update(data)
    return hasher.digest() == expected


def _expected(asset: Asset) -> tuple[bytes, _Hash]:
    if asset.md5 is not None:
        return asset.md5, hashlib.md5(usedforsecurity=False)
    if asset.crc32c is None:
        raise DownloadError(f"the bucket has no hash of {asset.name}, so that it cannot be verified")
    try:
        import google_crc32c
    except ImportError:
        raise DownloadError(f"{asset.name} has a CRC32C only; install google-crc32c to verify it") from None
    made: Any = google_crc32c.Checksum
    return asset.crc32c, made()


def _target(folder: Path, asset: Asset) -> Path:
    target = folder / asset.path
    # A link that lies in the folder could still lead out of it.
    root = folder.resolve()
    if root not in target.parent.resolve().parents and target.parent.resolve() != root:
        raise DownloadError(f"{target.parent} leads out of {folder}; nothing is written there")
    return target


def _fill(bucket: Bucket, asset: Asset, file: BinaryIO, part: Path) -> None:
    """Append to `file` until it is the whole object; as many failures in a row are let pass as requests are tried."""
    _expected(asset)  # what cannot be verified is not downloaded
    failures, most = 0, -1
    while True:
        start = os.fstat(file.fileno()).st_size
        # Only bytes that had not arrived before are progress: what is thrown away and sent again is none.
        failures, most = (0, start) if start > most else (failures, most)
        if start == asset.size:
            if matches(part, asset):
                return
            problem = "has not the hash that the bucket recorded"
            file.truncate(0)
        elif start > asset.size:
            problem = f"has {start} bytes or more, and the bucket says {asset.size}"
            file.truncate(0)
        else:
            problem = _append(bucket, asset, file, start)
            if not problem:
                continue
        failures += 1
        if failures > bucket.attempts:
            raise DownloadError(f"{asset.name} {problem}; given up after {failures} times, what has arrived is kept")
        wait = min(MAX_WAIT, bucket.backoff * 2 ** (failures - 1))
        _log.warning("%s %s; again in %.0f s", asset.name, problem, wait)
        time.sleep(wait)


def _append(bucket: Bucket, asset: Asset, file: BinaryIO, start: int) -> str:
    """Write what the service sends from `start` on; what went wrong, empty if nothing did."""
    response = bucket.open(asset, start)
    try:
        if response.status == 416:
            file.truncate(0)
            return f"ends before byte {start} on the server"
        if response.status == 206 and not _range_starts_at(response.headers.get("Content-Range", ""), start):
            return "came from another place than asked for"
        if response.status == 200 and start:
            file.truncate(0)  # the service sends all of it, whatever was asked for
        written = 0 if response.status == 200 else start
        for data in response.stream(CHUNK, decode_content=False):
            written += len(data)
            file.write(data)
            if written > asset.size:
                break
        file.flush()
        return "" if written >= asset.size else f"ended after {written} of {asset.size} bytes"
    except HTTPError as problem:
        file.flush()
        return f"broke off: {problem}"
    finally:
        response.close()


def _range_starts_at(said: str, start: int) -> bool:
    return said.replace("=", " ").startswith(f"bytes {start}-")


def _publish(part: Path, target: Path) -> None:
    """Give the whole file its name, unless something has that name by now."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise DownloadError(f"{target} came into being meanwhile; what was downloaded is {part}") from None
    except OSError:  # no hard links on this disk
        if os.path.lexists(target):
            raise DownloadError(f"{target} came into being meanwhile; what was downloaded is {part}") from None
        os.rename(part, target)
        return
    part.unlink()
