"""`python -m geartrain.cluster.tied MODULE …`: run a module in a process that the kernel ends with its parent.

By a module and not by `preexec_fn`: the process that starts it has threads of its own, which a fork may deadlock.
"""

import runpy
import sys

from geartrain.processes import end_with_parent

if __name__ == "__main__":
    end_with_parent()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
