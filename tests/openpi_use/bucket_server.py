# SPDX-License-Identifier: Apache-2.0
"""A storage service on this machine, over TLS, that misbehaves as it is told to."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import google_crc32c


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1 that vouches for itself, and its key."""
    made, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subject = ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(made), *subject], check=True, capture_output=True)
    return made, key


class Store:
    """What the service has, and what it does wrong.

    Attributes
    ----------
    objects : dict
        Name to bytes.
    listed : dict
        Name to fields of the listing that differ from the truth; a value None leaves the field out.
    extra : list
        Items of the listing that stand for no object.
    page : int
        Items a page.
    faults : list of str
        What the next requests for bytes get, in turn; then they are served well. `drop N` closes the connection after
        N bytes, `truncate N` ends properly after N, `status N`, `all` ignores the range, `elsewhere` sends another
        range, `garbage` other bytes, `more` more bytes than there are, `416`.
    listing_faults : list of int
        Statuses that the next requests for a listing get.
    loop : bool
        Whether the listing leads back to its second page.
    requests : list of tuple
        Name and range of each request for bytes.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.listed: dict[str, dict[str, Any]] = {}
        self.extra: list[dict[str, Any]] = []
        self.page = 1000
        self.faults: list[str] = []
        self.listing_faults: list[int] = []
        self.loop = False
        self.requests: list[tuple[str, str | None]] = []

    def items(self, prefix: str) -> list[dict[str, Any]]:
        found = []
        for name, data in sorted(self.objects.items()):
            checksum: Any = google_crc32c.Checksum
            item = {
                "name": name,
                "size": str(len(data)),
                "generation": "7",
                "md5Hash": base64.b64encode(hashlib.md5(data).digest()).decode(),
                "crc32c": base64.b64encode(checksum(data).digest()).decode(),
            }
            item |= self.listed.get(name, {})
            found.append({key: value for key, value in item.items() if value is not None})
        return [*(item for item in found if item["name"].startswith(prefix)), *self.extra]


def handler(store: Store) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            _, _, name = url.path.partition("/o/")
            if query.get("alt") == "media":
                self.media(unquote(name))
            else:
                self.listing(query)

        def listing(self, query: dict[str, str]) -> None:
            if store.listing_faults:
                self.answer(store.listing_faults.pop(0), b"")
                return
            start = int(query.get("pageToken", "0"))
            items = store.items(query["prefix"])
            page: dict[str, Any] = {"items": items[start : start + store.page]}
            if start + store.page < len(items):
                page["nextPageToken"] = str(start + store.page)
            elif store.loop:
                page["nextPageToken"] = str(store.page)
            self.answer(200, json.dumps(page).encode())

        def media(self, name: str) -> None:
            asked = self.headers.get("Range")
            store.requests.append((name, asked))
            what, _, number = (store.faults.pop(0) if store.faults else "").partition(" ")
            data = store.objects[name]
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and what != "all" else 0
            if what == "status":
                self.answer(int(number), b"")
                return
            if what == "416" or start >= len(data) > 0:
                self.answer(416, b"")
                return
            if what == "elsewhere":
                start = 0
            body = data[start:]
            if what == "garbage":
                body = bytes(255 - byte for byte in body)
            elif what == "more":
                body += b"more"
            elif what == "truncate":
                body = body[: int(number)]
            headers = {}
            if asked and what != "all":
                headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            cut = int(number) if what == "drop" else None
            self.answer(206 if headers else 200, body, headers, cut)

        def answer(
            self, status: int, body: bytes, headers: dict[str, str] | None = None, cut: int | None = None
        ) -> None:
            self.send_response(status)
            for key, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body if cut is None else body[:cut])
            if cut is not None:
                self.wfile.flush()
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

    return Handler


@contextmanager
def serving(store: Store, tls: tuple[Path, Path] | None) -> Iterator[str]:
    """Serve `store` on a free port; gives the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler(store)) as server:
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
