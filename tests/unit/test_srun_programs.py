"""The rewritten file of --multi-prog: every program behind the shim, and not a word of the person's changed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from handwash.srun import programs

SHIM = ["/bin/sh", "-c", "a 'b' \\ %t $0", "it's\t", "x" * 1500, ""]

words = st.text(st.characters(blacklist_characters="\0\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029",
                              blacklist_categories=("Cs", "Zs")), max_size=6)  # fmt: skip


def read(text: str) -> dict[str, list[str]]:
    """The entries as slurmstepd reads them: ranks, then words; by the manual, without %t and %o."""
    entries: dict[str, list[str]] = {}
    joined = ""
    for line in text.split("\n"):
        joined += line
        if joined.endswith("\\"):
            joined = joined[:-1]
            continue
        ranks, _, rest = joined.strip(" \t").partition(" ")
        joined = ""
        if not ranks or ranks.startswith("#"):
            continue
        found: list[str] = []
        current: str | None = None
        letters: Iterator[str] = iter(rest)
        for letter in letters:
            if letter in " \t":
                if current is not None:
                    found.append(current)
                current = None
            elif letter == "'":
                current = (current or "") + "".join(takewhile(lambda one: one != "'", letters))
            else:
                current = (current or "") + (next(letters, "") if letter == "\\" else letter)
        entries[ranks] = [*found, *([] if current is None else [current])]
    return entries


def written(word: str) -> str:
    """A word in a way that the file's rules allow."""
    return "'" + word.replace("'", "'\\''") + "'" if word.endswith("\\") or not word.isalnum() else word


@given(st.lists(st.lists(words, min_size=1, max_size=5), min_size=1, max_size=4), st.booleans())
def test_every_program_gets_the_shim_and_keeps_its_words(entries: list[list[str]], spread: bool) -> None:
    glue = " \\\n " if spread else "  "
    lines = [f" {rank}\t{glue.join(map(written, entry))}" for rank, entry in enumerate(entries)]
    text = "# all\n\n" + "\n".join(lines) + "\n"
    plain = {str(rank): entry for rank, entry in enumerate(entries)}
    assert read(text.replace("\t", " ")) == {rank: [w.replace("\t", " ") for w in e] for rank, e in plain.items()}
    changed = programs.rewrite(text, SHIM, 0)
    assert changed is not None
    assert read(changed) == {rank: [*SHIM, *entry] for rank, entry in plain.items()}
    assert all(len(line.encode()) < programs.LINE_LIMIT for line in changed.split("\n"))


def test_what_cannot_be_rewritten() -> None:
    """Left to srun: what it refuses, what it and slurmstepd read differently, what would get too long."""
    for text in (
        "0\n",
        "0 \\\n echo a\n",
        "0 echo \\\n\n1 echo b\n",
        "0 echo " + "x" * programs.LINE_LIMIT + "\n",
        "0 echo " + "x " * 125 + "\n",
        "".join(f"{rank} echo\n" for rank in range(40)),
    ):
        assert programs.rewrite(text, SHIM, 0) is None
    assert programs.rewrite("0 echo\n", SHIM, 125) is None


def test_a_comment_may_be_continued() -> None:
    """srun and slurmstepd pass over the line after it too (22.05)."""
    assert programs.rewrite("# a\\\n0 echo a\n1 echo b", ["x"], 0) == "# a\\\n0 echo a\n1 'x' \\\necho b"


def test_only_a_file_that_can_be_read_twice(tmp_path) -> None:
    assert programs.read(str(tmp_path)) is None
    assert programs.read(str(tmp_path / "none")) is None
    assert programs.read("/dev/null") is None
    (tmp_path / "big").write_bytes(b"#" * programs.FILE_LIMIT)
    assert programs.read(str(tmp_path / "big")) is None
    (tmp_path / "file").write_bytes(b"0 echo \xff\r\n")
    assert programs.read(str(tmp_path / "file")) == "0 echo \udcff\r\n"
