# SPDX-License-Identifier: Apache-2.0
"""What a rank executes for a Hydra application whose task can be imported, or was sent as it is."""

import os
import pathlib

from turbo_hydra.launch import hydra_task

if __name__ == "__main__":
    hydra_task.Payload(pathlib.Path(os.environ.pop(hydra_task.VARIABLE))).call()
