# SPDX-License-Identifier: Apache-2.0
"""Ablation: what each group is worth, from runs with groups on and off. Imports no torch."""
