"""What srun starts under every task: `python -I -S …/task.py ORDERS COMMAND [ARGUMENT…]`.

As short as can be: a script that is run directly is compiled at every start, what it imports only once.
"""

import sys

folder = __file__.rpartition("/")[0]
# The two packages as they would be after their import, which would read the whole folder that they lie in.
for name, path in (("handwash", folder.rpartition("/")[0]), ("handwash.node", folder)):
    sys.modules[name] = package = type(sys)(name)
    package.__path__ = [path]
try:
    from handwash.node import supervisor

    prepared = supervisor.prepare(sys.argv[1], sys.argv[2:])
except Exception as error:
    import os

    os.write(2, f"handwash: {type(error).__name__}: {error}; running without supervision\n".encode())
    os.execvp(sys.argv[2], sys.argv[2:])
supervisor.main(*prepared)
