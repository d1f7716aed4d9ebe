"""The one place that writes to the terminal: colour, the width of Chinese characters, harmless foreign text.

Tables come from rich, which is imported only when one is shown: it costs seven bare interpreter starts.
"""

from __future__ import annotations

import os
import sys

from handwash import world

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
# Marks that reorder or hide what stands beside them (Unicode 15, bidirectional and zero-width formatting characters).
_HIDDEN = frozenset(
    chr(code)
    for code in (0x00AD, 0x061C, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF)
)


def harmless(text: str, limit: int = 300) -> str:
    """Text that others chose, made safe to print: control and invisible characters are shown, not sent; cut at `limit`."""
    if text.isascii() and text.isprintable():
        return text if len(text) <= limit else text[: limit - 1] + "…"
    shown = []
    for character in text[: limit + 1]:
        code = ord(character)
        if code < 0x20 or 0x7F <= code < 0xA0:
            shown.append(f"\\x{code:02x}")
        elif character in _HIDDEN or 0xD800 <= code < 0xE000:
            shown.append(f"\\u{code:04x}")
        else:
            shown.append(character)
    return "".join(shown) if len(text) <= limit else "".join(shown[: limit - 1]) + "…"


def width(text: str) -> int:
    """Terminal cells that a text takes: wide and full-width characters two (Unicode Standard Annex 11), marks none."""
    if text.isascii():
        return len(text)
    import unicodedata

    cells = 0
    for character in text:
        if unicodedata.combining(character):
            continue
        cells += 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return cells


def pad(text: str, cells: int) -> str:
    """`text` with spaces behind it up to a width in terminal cells."""
    return text + " " * max(0, cells - width(text))


def prepare(stream: TextIO) -> None:
    """A character that the terminal's encoding lacks becomes a question mark, never a traceback."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")


def coloured(stream: TextIO) -> bool:
    """Colour goes to terminals that have it, and never where NO_COLOR is set (no-color.org)."""
    if world.env.get("NO_COLOR") or world.env.get("TERM") == "dumb":
        return False
    try:
        return stream.isatty()
    except ValueError:
        return False


def style(text: str, name: str, stream: TextIO) -> str:
    return f"\x1b[{_STYLES[name]}m{text}\x1b[0m" if coloured(stream) else text


def say(line: str = "", stream: TextIO | None = None) -> None:
    """One line to standard output (or `stream`). A reader that has gone away is no fault of ours."""
    target = sys.stdout if stream is None else stream
    try:
        target.write(line + "\n")
        target.flush()
    except BrokenPipeError:
        # The interpreter would complain again when it flushes at its own end.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, target.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass


def warn(line: str) -> None:
    """One line to standard error."""
    say(line, sys.stderr)


def table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO | None = None, numeric: str = ""
) -> None:
    """A table of foreign text, made harmless, its columns in line whatever their width. `numeric`: columns set right."""
    target = sys.stdout if stream is None else stream
    world.add_site_packages()
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=target, highlight=False, markup=False, emoji=False, no_color=not coloured(target))
    if not target.isatty():
        console.width = 160
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for place, heading in enumerate(headings):
        right = str(place) in numeric
        made.add_column(heading, justify="right" if right else "left", no_wrap=right, overflow="fold")
    for row in rows:
        made.add_row(*(Text(harmless(cell)) for cell in row))
    try:
        console.print(made)
    except OSError:
        pass


def size(count: int | None) -> str:
    """Bytes for a person: `512 MiB`, `39.4 GiB`; a dash where it is not known."""
    if count is None:
        return "-"
    mebibytes = count / 1048576
    if mebibytes < 1024:
        return f"{mebibytes:.0f} MiB"
    return f"{mebibytes / 1024:.1f} GiB"


def duration(seconds: float | None) -> str:
    """Seconds as squeue shows times: `M:SS`, `H:MM:SS`, `D-HH:MM:SS`; a dash where it is not known."""
    if seconds is None:
        return "-"
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    clock = f"{rest // 60:02d}:{rest % 60:02d}"
    if days:
        return f"{days}-{hours:02d}:{clock}"
    return f"{hours}:{clock}" if hours else f"{rest // 60}:{rest % 60:02d}"
