# SPDX-License-Identifier: Apache-2.0
"""Catalogs of single models."""
