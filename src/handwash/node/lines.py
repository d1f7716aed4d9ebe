"""The form of session files: a first line with a version, then lines of tab-separated fields. Reading needs no module."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HEADER = "handwash-session 1"
_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": "\\0"}
_MEANINGS = {escape[1]: character for character, escape in _ESCAPES.items()}


def escape(text: str) -> str:
    """One field on one line."""
    if text.isalnum():
        return text
    return "".join(_ESCAPES.get(character, character) for character in text)


def unescape(text: str) -> str:
    """The reverse of `escape`; an unknown escape stands for its letter."""
    if "\\" not in text:
        return text
    parts: list[str] = []
    letters = iter(text)
    for letter in letters:
        if letter == "\\":
            following = next(letters, "")
            parts.append(_MEANINGS.get(following, following))
        else:
            parts.append(letter)
    return "".join(parts)


def join(fields: "Sequence[object]") -> str:
    """Fields to one line without its end."""
    return "\t".join(escape(str(field)) for field in fields)


def split(line: str) -> "list[str]":
    """One line to its fields."""
    return [unescape(field) for field in line.split("\t")]


def pack(rows: "Iterable[Sequence[object]]") -> bytes:
    """Rows to the content of a file."""
    text = "\n".join([HEADER, *(join(row) for row in rows), ""])
    return text.encode("utf-8", "surrogateescape")


def unpack(data: bytes) -> "list[list[str]] | None":
    """The content of a file to its rows; None where it is not ours, of another version, or cut short."""
    text = data.decode("utf-8", "surrogateescape")
    if not text.endswith("\n"):
        return None
    first, *rest = text[:-1].split("\n")
    return [split(line) for line in rest] if first == HEADER else None
