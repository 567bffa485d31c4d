# SPDX-License-Identifier: Apache-2.0
"""Public files of a storage bucket: listed, downloaded with resumption, verified."""
