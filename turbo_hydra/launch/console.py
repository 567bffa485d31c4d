# SPDX-License-Identifier: Apache-2.0
"""Showing on the terminal what ranks write into their logs, byte by byte.

torch's own follower reads lines as text: it makes a new line of each state of a progress bar, and holds a line until it
ends, however long. Bytes are copied here as they come.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

_CHUNK = 1 << 16
_PAUSE = 0.05


class Follower:
    """Copies what is appended to a file to a descriptor, until it is told to stop.

    Parameters
    ----------
    path : Path
        The file; it may appear later.
    descriptor : int
        Where the bytes go.
    prefix : bytes
        Written at the start of each line; empty copies unchanged.
    """

    def __init__(self, path: Path, descriptor: int, prefix: bytes = b"") -> None:
        self._path = path
        self._descriptor = descriptor
        self._prefix = prefix
        self._at_line_start = True
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"follow-{path.name}", daemon=True)

    def start(self) -> None:
        """Begin to copy."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Copy what is there and end; given up after `timeout` seconds, when nobody reads the terminal."""
        self._stop.set()
        self._thread.join(timeout)

    def _follow(self) -> None:
        source = None
        try:
            while True:
                stopping = self._stop.is_set()
                if source is None and self._path.exists():
                    source = os.open(self._path, os.O_RDONLY)
                data = b"" if source is None else os.read(source, _CHUNK)
                if data:
                    self._write(data)
                elif stopping:
                    return
                else:
                    self._stop.wait(_PAUSE)
        except OSError:  # the terminal is gone; the file has everything
            return
        finally:
            if source is not None:
                os.close(source)

    def _write(self, data: bytes) -> None:
        if self._prefix:
            start = self._prefix if self._at_line_start else b""
            self._at_line_start = data.endswith(b"\n")
            body = data[:-1] if self._at_line_start else data
            data = start + body.replace(b"\n", b"\n" + self._prefix) + (b"\n" if self._at_line_start else b"")
        while data:
            data = data[os.write(self._descriptor, data) :]
