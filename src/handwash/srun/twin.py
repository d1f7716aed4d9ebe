"""Tells a signal to safe-srun alone from one to its whole process group, which srun has then too.

The kernel says who sent a signal, not to whom. So a twin stands in the group, with every signal blocked, and is asked.
"""

from __future__ import annotations

import os
import time

from handwash.node import kernel
from handwash.node.apart import live_apart

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket as _socket
else:
    import _socket

# The kernel signals a group's members one after the other; `timeout` signals its child first, then the group.
SETTLE = 0.002
REPLY_LIMIT = 1.0


class Twin:
    """safe-srun's side. Where no twin can be had, every signal counts as sent to safe-srun alone."""

    def __init__(self) -> None:
        """To be called with every signal blocked. The twin ends when this process does."""
        self.connection: _socket.socket | None = None
        try:
            mine, other = _socket.socketpair()
        except OSError:
            return
        try:
            child = os.fork()
        except OSError:
            mine.close()
            other.close()
            return
        if child == 0:
            try:
                kernel.prctl(kernel.PR_SET_NAME, b"handwash")
                live_apart(other.fileno())
                answer(other)
            finally:
                os._exit(0)
        other.close()
        mine.settimeout(REPLY_LIMIT)
        self.connection = mine

    def had(self, number: int) -> bool:
        """Whether the signal that has just come here came to the twin too."""
        if self.connection is None:
            return False
        time.sleep(SETTLE)
        try:
            self.connection.send(b"?")
            count = self.connection.recv(1)
            return bool(count and count[0]) and number in self.connection.recv(count[0])
        except OSError:
            # Ended, or stopped with the rest of the group.
            self.connection = None
            return False


def answer(connection: _socket.socket) -> None:
    """The twin's side: which signals have come since it was last asked?"""
    while connection.recv(1):
        seen = set()
        while found := kernel.pending_signal():
            seen.add(found)
        connection.send(bytes([len(seen), *sorted(seen)]))
