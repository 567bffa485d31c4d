# SPDX-License-Identifier: Apache-2.0
"""A small transformer that learns to count."""
