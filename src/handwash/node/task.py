"""What srun starts under every task: `python -I -S …/task.py ORDERS COMMAND [ARGUMENT…]`.

As short as can be: a script that is run directly is compiled at every start, what it loads only once.
"""

import sys
from _frozen_importlib_external import SourceFileLoader

folder = __file__.rpartition("/")[0]
# The two packages as they would be after their import, which would read the whole folder that they lie in.
for name, path in (("handwash", folder.rpartition("/")[0]), ("handwash.node", folder)):
    sys.modules[name] = package = type(sys)(name)
    package.__path__ = [path]
try:
    # What every task needs, each after what it imports itself, as `import` would load it in the end. That would look for each
    # of them first, for an eighth of a bare interpreter start on a node that starts many tasks at once.
    for name in ("kernel", "wire", "chain", "command", "supervisor"):
        full = f"handwash.node.{name}"
        sys.modules[full] = package.__dict__[name] = module = type(sys)(full)
        exec(SourceFileLoader(full, f"{folder}/{name}.py").get_code(full), module.__dict__)  # type: ignore[arg-type]
    prepared = module.prepare(sys.argv[1], sys.argv[2:])
except Exception as error:
    import os
    import signal

    text = f"handwash: {type(error).__name__}: {error}; running without supervision\n"
    try:
        os.write(2, text.encode(errors="replace"))
    except OSError:
        pass
    # Python ignores these two, and ignored signals stay ignored over exec.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as failed:
        try:
            os.write(2, f"handwash: {sys.argv[2]}: {failed.strerror}\n".encode(errors="replace"))
        finally:
            os._exit(failed.errno or 2)
module.main(*prepared)
