# SPDX-License-Identifier: Apache-2.0
"""The config groups, as a package so that Hydra finds them in a checkout and in a wheel."""
