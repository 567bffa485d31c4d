# SPDX-License-Identifier: Apache-2.0
"""The entry of a rank: `python -m turbo_hydra.launch.rank JOB [-- [-m] SCRIPT ARGUMENT...]`.

The module that Python starts is `__main__`, and stays it: it is emptied and becomes the script's.
"""

if __name__ == "__main__":
    import sys

    from turbo_hydra.launch.rank_main import main

    main(sys.argv[1:], globals())
