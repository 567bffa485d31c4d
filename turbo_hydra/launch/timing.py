# SPDX-License-Identifier: Apache-2.0
"""How long is waited for what, where the settings say nothing."""

# Until the ranks of all nodes have started; until they have ended after they were told to.
START_TIMEOUT = 600.0
SHUTDOWN_TIMEOUT = 10.0
# A node that runs with others gives a sign of life this often.
BEAT = 2.0
