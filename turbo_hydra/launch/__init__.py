# SPDX-License-Identifier: Apache-2.0
"""Starting a training script in its ranks: the parent's side imports no torch.

`run(job)` starts the agent, which starts the ranks; each rank applies the optimizations and then executes the script.
"""

from turbo_hydra.launch.job import Job, JobError
from turbo_hydra.launch.outcome import JobFailed
from turbo_hydra.launch.starting import run

__all__ = ["Job", "JobError", "JobFailed", "run"]
