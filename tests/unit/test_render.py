"""What reaches the terminal: harmless text, columns in line, and nothing at all where nobody reads."""

from __future__ import annotations

import io
import os
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from handwash import render, world

anything = st.text(st.characters(), max_size=80)


@given(anything)
@example("\x1b[2J\x1b]0;title\x07")
@example("a\u202eb\u2066c\u200bd\ufeff")
@example("\U000e0041\u180e\u2028")
@example("\x9b31m\x7f\r\n\t\0")
@example("\ud800")
def test_nothing_that_acts_gets_through(text: str) -> None:
    """No control, format, surrogate or separator character is left, and plain text is left alone."""
    shown = render.harmless(text)
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    shown.encode()
    if text.isprintable():
        assert shown == text


@given(anything, st.integers(1, 30))
def test_long_text_is_cut(text: str, limit: int) -> None:
    """What is cut ends in an ellipsis; the limit counts characters of the text."""
    shown = render.harmless(text, limit)
    assert (len(text) > limit) == (shown != render.harmless(text, 1000)) or shown.endswith("…")
    if text.isprintable():
        assert len(shown) <= limit


@pytest.mark.parametrize("text", ["算力卡 2 张", "ｆｕｌｌ", "\u3000", "naïve café", "한국어"])
def test_other_scripts_stay_readable(text: str) -> None:
    """Chinese, its blank included, and whatever else can be printed is shown as it is."""
    assert render.harmless(text) == text


@given(st.text(st.sampled_from("abc算力卡时ｆ，。é ก็ै中"), max_size=30))
@example("e\u0301")
@example("\u0e01\u0e31")
def test_width_is_that_of_rich(text: str) -> None:
    """The width in cells is what rich takes it for."""
    assert render.width(text) == cell_len(text)


@given(st.text("ab算力卡", max_size=20), st.integers(0, 30))
def test_padding_fills_cells(text: str, cells: int) -> None:
    """A padded text takes the cells asked for, or its own where it is longer."""
    padded = render.pad(text, cells)
    assert padded.startswith(text) and render.width(padded) == max(cells, render.width(text))


def test_a_table_is_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each column begins in the same cell in every row, escape sequences are shown, and no colour goes into a file."""
    monkeypatch.setattr(world, "env", {"FORCE_COLOR": "1", "TERM": "xterm-256color"})
    out = io.StringIO()
    render.table(["名字", "b"], [("算力卡", "x"), ("a\x1b[31m", "y\nz")], out)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert "\x1b" not in out.getvalue() and "\\x1b" in out.getvalue()
    places = {render.width(line[: line.rindex(last)]) for line, last in zip(lines, ("b", "x", "y"))}
    assert len(lines) == 3 and len(places) == 1


class Gone(io.TextIOBase):
    """A stream that cannot be written to."""

    def __init__(self, error: OSError) -> None:
        self.handle, write_end = os.pipe()
        os.close(write_end)
        self.error = error

    def write(self, _text: str) -> int:
        raise self.error

    def fileno(self) -> int:
        return self.handle


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "No space left on device"), OSError(5, "I/O")])
def test_nobody_reads(error: OSError) -> None:
    """A reader that is gone, a full disk: the words are lost, nothing else."""
    stream = Gone(error)
    try:
        render.say("words", stream)
        render.table(["a"], [("b",)], stream)
    finally:
        os.close(stream.handle)


def test_no_stream_at_all() -> None:
    """Where standard output was closed Python has no stream."""
    closed = io.StringIO()
    closed.close()
    render.say("words", closed)
    render.prepare(closed)


@pytest.mark.parametrize(
    ("env", "terminal", "colour"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_colour(env: dict[str, str], terminal: bool, colour: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Colour goes to terminals only, and not where NO_COLOR is set to something (no-color.org)."""
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(world, "env", env)
    assert render.coloured(stream) is colour
    assert ("\x1b" in render.style("x", "red", stream)) is colour


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (-3, "0:00"), (0, "0:00"), (65, "1:05"), (3600, "1:00:00"), (90061, "1-01:01:01")],
)
def test_durations(seconds: float | None, text: str) -> None:
    """Times look as squeue's."""
    assert render.duration(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(None, "-"), (0, "0 MiB"), (512 << 20, "512 MiB"), (40 << 30, "40.0 GiB")])
def test_sizes(count: int | None, text: str) -> None:
    """Bytes for a person."""
    assert render.size(count) == text
