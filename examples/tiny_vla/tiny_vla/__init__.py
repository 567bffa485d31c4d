# SPDX-License-Identifier: Apache-2.0
"""A vision-language-action policy in miniature: two cameras, one instruction, a chunk of actions by flow matching."""
