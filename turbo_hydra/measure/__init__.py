# SPDX-License-Identifier: Apache-2.0
"""Measuring: the steps of any training script, and the statistics of comparing runs.

`meter` is what a rank installs; it is the only module here, with its helpers, that imports torch. `rows`, `statistics`
and `comparing` read what it wrote and import nothing outside the standard library.
"""
