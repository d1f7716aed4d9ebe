"""The words a person reads. English is the source; a translation comes from the catalogues in `locale/`.

Whole sentences with named placeholders go through `_` and `ngettext`. gettext itself is loaded only when a language other
than English is asked for: its import costs as much as a bare interpreter start.
"""

from __future__ import annotations

import os

from handwash import slurm_names, world

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gettext import NullTranslations

_catalogue: NullTranslations | None = None
_chosen = False


def language() -> str:
    """`zh_CN` or `en`, from HANDWASH_LANG, else from the locale as locale(7) orders it."""
    for variable in ("HANDWASH_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        value = world.env.get(variable)
        if value:
            return "zh_CN" if _is_chinese(value) else "en"
    return "en"


def _is_chinese(locale: str) -> bool:
    return locale.lower().startswith("zh")


def choose(wanted: str | None = None) -> None:
    """Takes a language for the rest of this process: that of `wanted` (`zh`, `zh_CN`, …), or the environment's."""
    global _catalogue, _chosen
    _chosen = True
    _catalogue = None
    if not _is_chinese(wanted or language()):
        return
    import gettext

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "locale", "zh_CN", "LC_MESSAGES", "handwash.mo")
    try:
        with open(path, "rb") as file:
            _catalogue = gettext.GNUTranslations(file)
    except (OSError, ValueError, UnicodeError):
        # A missing or damaged catalogue costs the translation, never the answer.
        _catalogue = None


def _(message: str) -> str:
    """`message` in the person's language, with Slurm's programs by the names that they have here."""
    if not _chosen:
        choose()
    return slurm_names.here(message if _catalogue is None else _catalogue.gettext(message))


def ngettext(one: str, many: str, count: int) -> str:
    """`one` or `many` by `count`, as `_` says it."""
    if not _chosen:
        choose()
    if _catalogue is None:
        return slurm_names.here(one if count == 1 else many)
    return slurm_names.here(_catalogue.ngettext(one, many, count))


def N_(message: str) -> str:
    """Marks a message for translation where it is defined; `_` translates it where it is shown."""
    return message
