"""The catalogues of what handwash says: `extract` prints the template, `update` renews the catalogues, `check` judges them.

    python tools/messages.py extract > handwash.pot
    python tools/messages.py update
    python tools/messages.py check        exit code 1 and one line for each fault
    python tools/messages.py compile      writes each .mo beside its .po, as a build does

A catalogue is at fault where a message of the code is missing, untranslated or fuzzy, where a placeholder or a command
in backticks differs from the English, where one ends in a space and the other does not, or where a message is left
that the code no longer has.
"""

from __future__ import annotations

import io
import os
import string
import sys
from collections.abc import Iterator

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = os.path.join(ROOT, "src", "handwash")
LOCALES = os.path.join(PACKAGE, "messages", "locale")
KEYWORDS = {"_": None, "N_": None, "ngettext": (1, 2)}


def template(package: str = PACKAGE) -> Catalog:
    """Every message of the code, in the order of the files."""
    catalogue = Catalog(project="handwash", domain="handwash", charset="utf-8", fuzzy=False)
    found = extract_from_dir(package, method_map=[("**.py", "python")], keywords=KEYWORDS)
    for name, line, message, _comments, _context in sorted(found, key=lambda row: (row[0], row[1])):
        catalogue.add(message, None, [(f"src/handwash/{name}", line)])
    return catalogue


def catalogues() -> dict[str, str]:
    """Locale to the path of its .po file."""
    found = {}
    for locale in sorted(os.listdir(LOCALES)):
        path = os.path.join(LOCALES, locale, "LC_MESSAGES", "handwash.po")
        if os.path.exists(path):
            found[locale] = path
    return found


def read(path: str, locale: str) -> Catalog:
    """A catalogue from its file."""
    with open(path, "rb") as file:
        return read_po(file, locale=locale, domain="handwash", abort_invalid=True)


def written(catalogue: Catalog) -> bytes:
    """The content of a .po file. Without line numbers, which would change with every edit of the code."""
    target = io.BytesIO()
    write_po(target, catalogue, width=120, include_lineno=False, ignore_obsolete=True)
    return target.getvalue()


def update() -> None:
    """Brings each catalogue in line with the code: new messages come in untranslated, those without use go."""
    for locale, path in catalogues().items():
        catalogue = read(path, locale)
        # No fuzzy matching: a guess that looks like a translation is worse than a gap.
        catalogue.update(template(), no_fuzzy_matching=True, update_header_comment=False)
        with open(path, "wb") as file:
            file.write(written(catalogue))


def compile_all() -> None:
    """Writes what gettext reads, for a checkout whose catalogues have changed since it was installed."""
    for locale, path in catalogues().items():
        target = io.BytesIO()
        write_mo(target, read(path, locale))
        with open(path[: -len(".po")] + ".mo", "wb") as file:
            file.write(target.getvalue())


def check() -> list[str]:
    """One line for each fault of each catalogue; empty where all is well."""
    wanted = template()
    faults = []
    for locale, path in catalogues().items():
        for fault in faults_of(read(path, locale), wanted):
            faults.append(f"{locale}: {fault}")
    return faults


def faults_of(catalogue: Catalog, wanted: Catalog) -> Iterator[str]:
    """The faults of one catalogue against the messages of the code."""
    if catalogue.fuzzy:
        yield "the header is marked fuzzy"
    for message in wanted:
        if message.id and message.id not in catalogue:
            yield f"missing: {_first(message.id)!r}"
    for obsolete in catalogue.obsolete.values():
        yield f"obsolete: {_first(obsolete.id)!r}"
    for message in catalogue:
        if not message.id:
            continue
        if message.id not in wanted:
            yield f"no longer in the code: {_first(message.id)!r}"
        elif message.fuzzy:
            yield f"fuzzy: {_first(message.id)!r}"
        elif not all(_forms(message.string)):
            yield f"not translated: {_first(message.id)!r}"
        else:
            yield from _differences(message, catalogue.num_plurals)


def _differences(message: Message, plurals: int) -> Iterator[str]:
    """Where a translation and its English do not have the same parts."""
    forms = _forms(message.string)
    if isinstance(message.id, (list, tuple)) and len(forms) != plurals:
        yield f"{len(forms)} plural forms instead of {plurals}: {_first(message.id)!r}"
    # The form for one may leave the number out ("this process"); the form for many has every placeholder.
    english = _forms(message.id)[-1]
    for form in forms:
        try:
            same = placeholders(form) == placeholders(english)
        except ValueError as error:
            yield f"broken placeholder ({error}): {form!r}"
            continue
        if not same:
            yield f"placeholders differ: {english!r} / {form!r}"
        if sorted(form.split("`")[1::2]) != sorted(english.split("`")[1::2]):
            yield f"commands in backticks differ: {english!r} / {form!r}"
        if form.endswith(" ") != english.endswith(" "):
            yield f"only one ends in a space: {english!r} / {form!r}"


def placeholders(text: str) -> list[str]:
    """The named placeholders of a sentence with their conversions and formats, sorted. Raises ValueError."""
    return sorted(
        f"{name}!{conversion or ''}:{layout}"
        for _literal, name, layout, conversion in string.Formatter().parse(text)
        if name is not None
    )


def _forms(text: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(text) if isinstance(text, (list, tuple)) else (text,)


def _first(text: str | list[str] | tuple[str, ...]) -> str:
    return _forms(text)[0]


def main(words: list[str]) -> int:
    if words == ["extract"]:
        sys.stdout.buffer.write(written(template()))
        return 0
    if words == ["update"]:
        update()
        return 0
    if words == ["compile"]:
        compile_all()
        return 0
    if words == ["check"]:
        faults = check()
        for fault in faults:
            print(fault)
        return 1 if faults else 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
