# SPDX-License-Identifier: Apache-2.0
"""What Hydra finds by itself: the launcher `torchrun` and the sweeper `ablation`."""
