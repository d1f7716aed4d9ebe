"""What srun starts under every task: `python -I -S …/task.py ORDERS COMMAND [ARGUMENT…]`.

A file of its own so that the rest is imported, hence compiled once; run directly, a script is compiled at every start.
"""

import gc
import os
import sys


def main() -> None:
    """Becomes the task's outer supervisor. Should that fail, it becomes the command itself."""
    arguments = sys.argv
    # Four processes share this interpreter's pages, and none of them makes garbage worth collecting: a collection would
    # only copy the pages.
    gc.disable()
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    try:
        from handwash.node import main as node
    except Exception as error:
        os.write(2, f"handwash: {type(error).__name__}: {error}; running without supervision\n".encode())
        os.execvp(arguments[2], arguments[2:])
    node.main(arguments[1], arguments[2:])


main()
