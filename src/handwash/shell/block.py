"""The marked block in a start-up file. Pure: bytes in, bytes out, so that any encoding and any line end pass unharmed."""

from __future__ import annotations

BEGIN = b"# >>> handwash >>>"
END = b"# <<< handwash <<<"
# Notes at the end of the block's line, for the way back: what else was changed when the block was put in.
_NEWLINE_ADDED = b"  # the line before had no end"
_FILE_MADE = b"  # this file was not there"


class Unbalanced(ValueError):
    """A begin without its end, or an end without its begin: whatever was changed could be the person's own."""


def put(content: bytes | None, line: str) -> bytes:
    """`content` (None: no such file) with the block that holds `line`: in the place of an earlier one, else at the end."""
    if content is None:
        return _block(line, _FILE_MADE)
    found = _find(content)
    if not found:
        if content and not content.endswith(b"\n"):
            return content + b"\n" + _block(line, _NEWLINE_ADDED)
        return content + _block(line, b"")
    start, end = found[0]
    rest = _without(content[end:], _find(content[end:]))
    return content[:start] + _block(line, _note(content[start:end])) + rest


def take(content: bytes) -> bytes | None:
    """`content` without its block, as it was before `put`; None where `put` made the file and nothing else is in it."""
    found = _find(content)
    note = _note(content[found[0][0] : found[0][1]]) if found else b""
    left = _without(content, found)
    if note == _FILE_MADE and not left:
        return None
    if note == _NEWLINE_ADDED and found[0][1] == len(content) and left.endswith(b"\n"):
        return left[:-1]
    return left


def has(content: bytes) -> bool:
    """Whether there is a block."""
    return bool(_find(content))


def _block(line: str, note: bytes) -> bytes:
    return b"\n".join((BEGIN, line.encode("utf-8", "surrogateescape") + note, END, b""))


def _note(block: bytes) -> bytes:
    lines = [line.rstrip() for line in block.split(b"\n")]
    return next((note for note in (_FILE_MADE, _NEWLINE_ADDED) if any(line.endswith(note) for line in lines)), b"")


def _find(content: bytes) -> list[tuple[int, int]]:
    """Where each block starts and ends, its final newline included."""
    found = []
    start: int | None = None
    position = 0
    for line in _lines(content):
        word = line.strip()
        if word == BEGIN:
            if start is not None:
                raise Unbalanced
            start = position
        elif word == END:
            if start is None:
                raise Unbalanced
            found.append((start, position + len(line)))
            start = None
        position += len(line)
    if start is not None:
        raise Unbalanced
    return found


def _lines(content: bytes) -> list[bytes]:
    """Lines as a shell has them: ended by a newline alone."""
    parts = content.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + [parts[-1]]


def _without(content: bytes, blocks: list[tuple[int, int]]) -> bytes:
    for start, end in reversed(blocks):
        content = content[:start] + content[end:]
    return content
