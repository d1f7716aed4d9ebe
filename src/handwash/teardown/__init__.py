"""Ending exactly the processes that were meant, and nothing else. Standard library only, for `python -I -S`."""
