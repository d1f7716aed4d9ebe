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
# Blanks other than the space, which Python counts among what cannot be printed; the ideographic one is common in Chinese.
_BLANKS = "\u00a0\u202f\u3000"


def harmless(text: str, limit: int = 300) -> str:
    """Text that others chose, made safe to print: control and invisible characters are shown, not sent; cut at `limit`."""
    if text.isascii() and text.isprintable():
        return text if len(text) <= limit else text[: limit - 1] + "…"
    shown = []
    for character in text[: limit + 1]:
        code = ord(character)
        # Not printable: control and format characters (bidirectional, zero-width, tags), surrogates, separators.
        if character.isprintable() or character in _BLANKS:
            shown.append(character)
        elif code < 0x100:
            shown.append(f"\\x{code:02x}")
        else:
            shown.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return "".join(shown) if len(text) <= limit else "".join(shown[: limit - 1]) + "…"


def width(text: str) -> int:
    """Terminal cells that a text takes: wide and full-width characters two (Unicode Standard Annex 11), marks none."""
    if text.isascii():
        return len(text)
    import unicodedata

    cells = 0
    for character in text:
        if unicodedata.category(character) in ("Mn", "Me"):
            continue
        cells += 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return cells


def pad(text: str, cells: int) -> str:
    """`text` with spaces behind it up to a width in terminal cells."""
    return text + " " * max(0, cells - width(text))


def open_closed_streams() -> None:
    """Puts /dev/null where the caller has closed standard input, output or error (`>&-`).

    Python's stream is None then, and the next pipe would get the free number and be taken for that stream by a child.
    """
    world.hold_closed_streams()
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)


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
    """One line to standard output (or `stream`). A reader that has gone away or a full disk is no fault of ours."""
    target = sys.stdout if stream is None else stream
    if target is None:  # closed by the caller, before `open_closed_streams`
        return
    try:
        target.write(line + "\n")
        target.flush()
    except OSError:
        _silence(target)
    except ValueError:
        pass


def _silence(stream: TextIO) -> None:
    """The interpreter would try again at its own end, complain, and exit with 120 whatever the verdict was."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def settle() -> None:
    """Writes out what others have printed (argparse its help), as forgiving as `say`."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            _silence(stream)
        except ValueError:
            pass


def warn(line: str) -> None:
    """One line to standard error."""
    say(line, sys.stderr)


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    stream: TextIO | None = None,
    numeric: str = "",
    whole: str = "",
) -> None:
    """A table of foreign text, made harmless, its columns in line whatever their width. `numeric`: columns set right.

    `whole`: further columns whose words are not broken over lines.
    """
    target = sys.stdout if stream is None else stream
    world.add_site_packages()
    import io

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Not onto the stream itself: where that is a broken pipe, rich ends the program (13.8), and `clean` with it.
    lines = io.StringIO()
    console = Console(
        file=lines,
        highlight=False,
        markup=False,
        emoji=False,
        force_terminal=coloured(target),
        no_color=not coloured(target),
        width=columns(target),
    )
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for place, heading in enumerate(headings):
        right = str(place) in numeric
        made.add_column(
            heading, justify="right" if right else "left", no_wrap=right or str(place) in whole, overflow="fold"
        )
    for row in rows:
        made.add_row(*(Text(harmless(cell)) for cell in row))
    console.print(made)
    for line in lines.getvalue().splitlines():
        say(line, target)


def columns(stream: TextIO) -> int:
    """The width of the terminal behind a stream; where there is none, enough for a row on one line."""
    try:
        if stream.isatty():
            return max(40, os.get_terminal_size(stream.fileno()).columns)
    except (OSError, ValueError):
        pass
    return 160


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
