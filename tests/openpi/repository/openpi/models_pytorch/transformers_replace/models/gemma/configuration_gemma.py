# SPDX-License-Identifier: Apache-2.0
"""Nothing of this file is needed by the small model; upstream has it, and it is served with the others."""
