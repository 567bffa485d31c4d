# SPDX-License-Identifier: Apache-2.0
"""What multiprocessing imports in the children of a rank that it starts afresh (spawn, forkserver).

`__main__.__spec__` of a rank names this module. A child gets the optimizations first, then the script's statements
under the name `__mp_main__`, in this module's own namespace: that is where multiprocessing looks for them.
"""

if __name__ == "__mp_main__":
    from turbo_hydra.launch.child_main import execute

    execute(globals())
