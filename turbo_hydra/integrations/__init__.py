# SPDX-License-Identifier: Apache-2.0
"""Training frameworks that have hooks of their own."""
