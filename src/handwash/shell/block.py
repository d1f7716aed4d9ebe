"""The marked block in a start-up file. Pure: bytes in, bytes out, so that any encoding and any line end pass unharmed.

A file that several shells read has one block with a line for each hook; a line is known by its beginning, the guard.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

BEGIN = b"# >>> handwash >>>"
END = b"# <<< handwash <<<"
# Notes at the end of the block's line, for the way back: what else was changed when the block was put in.
_NEWLINE_ADDED = b"  # the line before had no end"
_FILE_MADE = b"  # this file was not there"


class Unbalanced(ValueError):
    """A begin without its end, or an end without its begin: whatever was changed could be the person's own."""


def put(content: bytes | None, line: str, guard: str = "") -> bytes:
    """`content` (None: no such file) with `line` in the block: in the place of an earlier one, else at the end.

    A line of an earlier block stays if it begins otherwise than with `guard`.
    """
    new = line.encode("utf-8", "surrogateescape")
    if content is None:
        return _block([new], _FILE_MADE)
    found = _find(content)
    if not found:
        if content and not content.endswith(b"\n"):
            return content + b"\n" + _block([new], _NEWLINE_ADDED)
        return content + _block([new], b"")
    start, end = found[0]
    old, note = _inside(content[start:end])
    places = [number for number, one in enumerate(old) if one.startswith(guard.encode())]
    kept = [one for number, one in enumerate(old) if number not in places]
    kept.insert(places[0] if places else len(kept), new)
    rest = _without(content[end:], _find(content[end:]))
    return content[:start] + _block(kept, note) + rest


def take(content: bytes, guards: Collection[str] = ("",)) -> bytes | None:
    """`content` without the lines of its block that begin with one of `guards`, and without the block if none is left.

    As it was before `put` then; None where `put` made the file and nothing else is in it.
    """
    found = _find(content)
    if not found:
        return content
    old, note = _inside(content[found[0][0] : found[0][1]])
    kept = [line for line in old if not any(line.startswith(guard.encode()) for guard in guards)]
    if kept:
        start, end = found[0]
        return content if kept == old else content[:start] + _block(kept, note) + content[end:]
    left = _without(content, found)
    if note == _FILE_MADE and not left:
        return None
    if note == _NEWLINE_ADDED and found[0][1] == len(content) and left.endswith(b"\n"):
        return left[:-1]
    return left


def has(content: bytes) -> bool:
    """Whether there is a block."""
    return bool(_find(content))


def _block(lines: list[bytes], note: bytes) -> bytes:
    return b"\n".join((BEGIN, *lines)) + note + b"\n" + END + b"\n"


def _inside(block: bytes) -> tuple[list[bytes], bytes]:
    """The lines of a block without its marks, and the note at the end of one of them."""
    lines = [line.rstrip() for line in block.strip().split(b"\n")[1:-1]]
    for note in (_FILE_MADE, _NEWLINE_ADDED):
        if any(line.endswith(note) for line in lines):
            return [line.removesuffix(note) for line in lines], note
    return lines, b""


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
