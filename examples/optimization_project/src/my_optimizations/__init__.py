# SPDX-License-Identifier: Apache-2.0
"""Optimization groups for turbo_hydra."""
