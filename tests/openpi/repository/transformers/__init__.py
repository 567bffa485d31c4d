# SPDX-License-Identifier: Apache-2.0
"""Stands where the library of this name stands, with the few objects that the small model needs."""

__version__ = "4.53.2"
