# SPDX-License-Identifier: Apache-2.0
"""Config groups, which turbo-train and turbo-opt find by the entry point `turbo_hydra.conf`."""
