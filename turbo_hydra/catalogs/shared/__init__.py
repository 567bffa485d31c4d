# SPDX-License-Identifier: Apache-2.0
"""Replacements that belong to no group: catalogs declare groups of their own on them.

Two catalogs that declare one of them at the same target are composed like any others: where both groups are on, one of
them is applied, and the other is skipped as covered by it. The same options class makes their options comparable.
"""
