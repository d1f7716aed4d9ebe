"""The marked block: put in, put in anew, taken out, with every byte around it as it was."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handwash.shell import block

LINE = "[ -r '/opt/hand wash/hook' ] && . '/opt/hand wash/hook' || :"
OTHER = ". /elsewhere"
BLOCK = block.BEGIN + b"\n" + LINE.encode() + b"\n" + block.END + b"\n"

pieces = st.sampled_from([b"a", b"\n", b"\r\n", b" ", b"\xff\x00", "手".encode(), b"# >>> conda >>>\n", b"#"])
contents = st.one_of(st.binary(max_size=200), st.lists(pieces, max_size=30).map(b"".join))


def unmarked(content: bytes) -> bool:
    return not any(line.strip() in (block.BEGIN, block.END) for line in content.split(b"\n"))


@given(contents.filter(unmarked))
@example(b"")
@example(b"no end")
@example(b"dos\r\n")
@example(b"\xff\xfe")
@example(b"\r")
def test_put_then_take_gives_back_every_byte(content: bytes) -> None:
    done = block.put(content, LINE)
    assert done.startswith(content)
    assert done.endswith(b"\n")
    assert block.has(done)
    assert block.put(done, LINE) == done
    assert block.take(done) == content
    assert block.take(block.put(done, OTHER)) == content


@given(contents.filter(unmarked), contents.filter(unmarked))
def test_a_block_is_replaced_in_its_place(before: bytes, after: bytes) -> None:
    if before and not before.endswith(b"\n"):
        before += b"\n"
    done = block.put(before + BLOCK + after, OTHER)
    assert done == before + BLOCK.replace(LINE.encode(), OTHER.encode()) + after
    assert block.take(done) == before + after


@given(st.lists(st.sampled_from([block.BEGIN + b"\n", block.END + b"\r\n", b"text\n", b"  " + block.BEGIN + b"\n"])))
def test_unbalanced_is_refused_and_balanced_is_not(lines: list[bytes]) -> None:
    depth, sound = 0, True
    for line in lines:
        depth += (block.BEGIN in line) - (block.END in line)
        sound = sound and depth in (0, 1)
    content = b"".join(lines)
    if sound and depth == 0:
        assert block.take(block.put(content, LINE)) == block.take(content)
        assert block.put(content, LINE).count(block.BEGIN) == 1
    else:
        for change in (lambda: block.put(content, LINE), lambda: block.take(content), lambda: block.has(content)):
            with pytest.raises(block.Unbalanced):
                change()


def test_a_file_that_put_made_goes_again() -> None:
    made = block.put(None, LINE)
    assert block.take(made) is None
    assert block.take(block.put(made, OTHER)) is None
    assert block.take(made + b"alias ll='ls -l'\n") == b"alias ll='ls -l'\n"
    assert block.take(b"") == b""
    assert block.take(block.put(b"", LINE)) == b"", "an empty file stays"


def test_what_was_written_after_the_block_keeps_its_line() -> None:
    done = block.put(b"no end", LINE)
    assert block.take(done + b"more\n") == b"no end\nmore\n"


def test_lines_that_only_look_like_markers_are_text() -> None:
    text = b"echo '# >>> handwash >>>'\n## >>> handwash >>>\n# >>> handwash >>> and more\n"
    assert not block.has(text)
    assert block.take(block.put(text, LINE)) == text


def test_an_editor_that_turned_line_ends_into_dos_ones_does_not_hide_the_block() -> None:
    done = block.put(b"a\n", LINE).replace(b"\n", b"\r\n")
    assert block.put(done, LINE) == b"a\r\n" + BLOCK
    assert block.take(done) == b"a\r\n"


def test_the_block_is_one_line_between_its_marks() -> None:
    assert block.put(b"", LINE) == BLOCK
    assert block.put(b"x\n" + BLOCK + b"y\n" + BLOCK, OTHER).count(block.BEGIN) == 1
