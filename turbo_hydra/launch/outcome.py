# SPDX-License-Identifier: Apache-2.0
"""Exit statuses: what they mean, and how a child's becomes the command's."""

from __future__ import annotations

import signal

WRONG_USE = 2
STRICT_STOP = 3


class JobFailed(Exception):
    """A job of a sweep ended with a status other than 0.

    Parameters
    ----------
    status : int
        The job's exit status.
    output_dir : str
        The job's folder, where its logs and reports are.
    """

    def __init__(self, status: int, output_dir: str) -> None:
        super().__init__(f"the job ended with {describe(status)}; its logs and reports are in {output_dir}")
        self.status = status
        self.output_dir = output_dir

    def __reduce__(self) -> tuple[type[JobFailed], tuple[int, str]]:
        return type(self), (self.status, self.output_dir)


def from_returncode(returncode: int) -> int:
    """Turn a child's return code into an exit status: signal n gives 128+n."""
    return 128 - returncode if returncode < 0 else returncode


def describe(status: int) -> str:
    """Say an exit status in words, with the signal's name where it stands for one."""
    if status > 128:
        try:
            return f"status {status} ({signal.Signals(status - 128).name})"
        except ValueError:
            pass
    return f"status {status}"
