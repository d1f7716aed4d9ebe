"""`python -I -S …/handwash/__main__.py COMMAND`: how the hooks and safe-srun start handwash, wherever it is installed."""

from __future__ import annotations

import os
import sys

if not __package__:
    # Started by path with -I: the folder that holds the package is not on the module path.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from handwash import cli

sys.exit(cli.main(sys.argv[1:]))
