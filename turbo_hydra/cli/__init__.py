# SPDX-License-Identifier: Apache-2.0
"""The commands turbo-train and turbo-opt."""
