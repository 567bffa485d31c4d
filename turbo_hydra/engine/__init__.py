# SPDX-License-Identifier: Apache-2.0
"""The engine: declared Python objects give way to faster ones, only where the code is what was validated."""
