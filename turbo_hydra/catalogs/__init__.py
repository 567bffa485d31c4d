# SPDX-License-Identifier: Apache-2.0
"""Catalogs: what can be made faster, declared group by group. Importing one imports neither torch nor a model."""
