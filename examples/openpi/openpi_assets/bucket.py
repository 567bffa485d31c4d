# SPDX-License-Identifier: Apache-2.0
"""A public bucket of Google Cloud Storage over its JSON API: what is in it, and the bytes of each object."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote, urlencode

import urllib3
from urllib3.exceptions import HTTPError

BASE = "https://storage.googleapis.com"
TRANSIENT = (408, 429, 500, 502, 503, 504)
_FIELDS = "nextPageToken,items(name,size,generation,md5Hash,crc32c)"


class DownloadError(Exception):
    """What went wrong, in one sentence that says what to do."""


@dataclass(frozen=True)
class Asset:
    """An object of the bucket.

    Attributes
    ----------
    name : str
        Its name in the bucket.
    path : PurePosixPath
        Where it belongs below the output folder.
    size : int
        Bytes.
    generation : int
        Changes whenever the object does.
    md5, crc32c : bytes or None
        As the bucket records them; large objects made of parts have no MD5.
    """

    name: str
    path: PurePosixPath
    size: int
    generation: int
    md5: bytes | None
    crc32c: bytes | None


class Bucket:
    """A bucket that anybody may read.

    Parameters
    ----------
    name : str
        Name of the bucket.
    base : str
        Address of the service; only https.
    ca_certs : str, optional
        File of certificates to trust in place of the system's.
    backoff : float
        Seconds of the first wait before a request is tried again; each further wait is twice as long.
    attempts : int
        How often a request is tried again.
    timeout : float
        Seconds without a byte after which a connection counts as broken.
    """

    def __init__(
        self,
        name: str,
        *,
        base: str = BASE,
        ca_certs: str | None = None,
        backoff: float = 1.0,
        attempts: int = 6,
        timeout: float = 60.0,
    ) -> None:
        if not base.startswith("https://"):
            raise DownloadError(f"{base} is not https, and what comes without it may have been changed on the way")
        self.name, self.base, self.backoff, self.attempts = name, base.rstrip("/"), backoff, attempts
        retries = urllib3.Retry(total=attempts, backoff_factor=backoff, backoff_max=60, status_forcelist=TRANSIENT)
        waiting = urllib3.Timeout(connect=timeout, read=timeout)
        self._pool = urllib3.PoolManager(retries=retries, timeout=waiting, ca_certs=ca_certs)

    def assets(self, prefix: str) -> list[Asset]:
        """Everything below `prefix` (ending in `/`), or the one object of that name; all pages of the listing.

        Raises
        ------
        DownloadError
            If nothing is there, or a name would lead out of the output folder.
        """
        found: dict[PurePosixPath, Asset] = {}
        for item in self._items(prefix):
            name = str(item.get("name", ""))
            # An empty folder, as the service's console makes one; beside one object, others whose names begin alike.
            if name.endswith("/") or (name != prefix and not prefix.endswith("/")):
                continue
            asset = _asset(item, prefix)
            if asset.path in found:
                raise DownloadError(f"the bucket '{self.name}' lists {asset.name} twice; try again later")
            found[asset.path] = asset
        if not found:
            raise DownloadError(f"there is nothing at gs://{self.name}/{prefix}")
        for path in found:
            if folder := next((above for above in path.parents if above in found), None):
                raise DownloadError(f"the bucket '{self.name}' lists {folder} as a file and as a folder of {path}")
        return [found[path] for path in sorted(found)]

    def open(self, asset: Asset, start: int) -> urllib3.BaseHTTPResponse:
        """The object's bytes from `start` on, as a stream; status 200 where the service sends all of it instead.

        Raises
        ------
        DownloadError
            If the service answers with anything but 200, 206 and 416.
        """
        query = urlencode({"alt": "media", "generation": asset.generation})
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        return self._get(f"/o/{quote(asset.name, safe='')}?{query}", headers, (200, 206, 416))

    def _items(self, prefix: str) -> Iterator[dict[str, Any]]:
        token, seen = "", set()
        while True:
            query = {"prefix": prefix, "fields": _FIELDS, "maxResults": 1000} | ({"pageToken": token} if token else {})
            response = self._get(f"/o?{urlencode(query)}", {}, (200,))
            try:
                page = json.loads(response.read())
                yield from page.get("items", ())
                token = page.get("nextPageToken", "")
            except (ValueError, AttributeError, HTTPError) as problem:
                raise DownloadError(f"the listing of '{self.name}' cannot be read: {problem}") from None
            finally:
                response.release_conn()
            if not token:
                return
            if token in seen:
                raise DownloadError(f"the listing of '{self.name}' comes back to a page that it has given before")
            seen.add(token)

    def _get(self, path: str, headers: dict[str, str], allowed: tuple[int, ...]) -> urllib3.BaseHTTPResponse:
        url = f"{self.base}/storage/v1/b/{quote(self.name, safe='')}{path}"
        try:
            # Redirections are not followed: they could leave https, and the service makes none.
            response = self._pool.request("GET", url, headers=headers, preload_content=False, redirect=False)
        except HTTPError as problem:
            raise DownloadError(f"{self.base} cannot be reached: {problem}") from None
        if response.status not in allowed:
            response.drain_conn()
            raise DownloadError(f"{self.base} answers {response.status} for '{path.partition('?')[0]}'")
        return response


def _asset(item: dict[str, Any], prefix: str) -> Asset:
    try:
        name, size, generation = str(item["name"]), int(item["size"]), int(item["generation"])
        hashes = [None if item.get(key) is None else base64.b64decode(item[key]) for key in ("md5Hash", "crc32c")]
    except (KeyError, TypeError, ValueError) as problem:
        raise DownloadError(f"the bucket lists {item!r}, which is no object: {problem!r}") from None
    return Asset(name, _inside(name, prefix), size, generation, *hashes)


def _inside(name: str, prefix: str) -> PurePosixPath:
    """Where an object belongs below the output folder.

    Raises
    ------
    DownloadError
        If its name is not below `prefix`, or is no plain relative path.
    """
    below = name.removeprefix(prefix) if prefix.endswith("/") else name.rpartition("/")[2]
    parts = below.split("/")
    plain = all(part not in ("", ".", "..") and not re.search(r"[\x00-\x1f\\:]", part) for part in parts)
    if not name.startswith(prefix) or not plain:
        raise DownloadError(f"the bucket lists {name!r}, which would lead out of the output folder; nothing is written")
    return PurePosixPath(*parts)
