"""Huawei's Ascend cards by the table of `npu-smi info`, of the layouts in which it says which device file each row means.

Those are the tables with `Chip`, `Chip Phy-ID` or `Chip Device` in their second heading (npu-smi 22 to 26). A table that is
laid out otherwise, or whose rows do not fit the device files that are here, is not read: the files alone count then.
"""

from __future__ import annotations

import os

from handwash import run
from handwash.accelerators.device_files import ASCEND, blank
from handwash.messages import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_PROGRAM = "npu-smi"
# Where the driver's installer and the containers of the vendor put it, which need not be on PATH.
_PLACES = ("/usr/local/sbin/npu-smi", "/usr/local/bin/npu-smi")
_MEBIBYTE = 1 << 20
# Seconds for a program that asks each card in turn; the look's own end comes first where it is nearer.
_PATIENCE = 10.0


def look(files: Sequence[str]) -> list[dict[str, Any]] | None:
    """The cards of the device `files` with the fields of `model.Gpu`; None where the tool is not here or cannot be read."""
    program = run.find(_PROGRAM) or next((path for path in _PLACES if os.access(path, os.X_OK)), None)
    if program is None:
        return None
    try:
        result = run.run([program, "info"], timeout=_PATIENCE)
    except OSError:
        return None
    return read(result.out.decode("utf-8", "replace"), files) if result.code == 0 else None


def read(table: str, files: Sequence[str]) -> list[dict[str, Any]] | None:
    """The cards out of the table, one for each of the device `files`; None where they do not fit each other."""
    numbers = {int(path[len(ASCEND.numbered) :]) for path in files}
    numbered = has_lists = False
    cards: dict[tuple[int, int], dict[str, Any]] = {}
    numbers_of: dict[tuple[int, int], int] = {}
    uses: dict[tuple[int, int], list[tuple[int, int | None, str, None]]] = {}
    above: tuple[int, str, str] | None = None
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        words = cells[0].split()
        if len(words) >= 2 and words[0] == "Chip":
            numbered = words[1] in ("Phy-ID", "Device")
        elif words[:2] == ["NPU", "Chip"]:
            has_lists = len(cells) >= 4 and cells[1] == "Process id"
        elif has_lists and len(cells) >= 4:
            ids, pid, memory = [_number(word) for word in words], _number(cells[1]), _number(cells[3])
            if len(ids) == 2 and ids[0] is not None and ids[1] is not None and pid:
                row = (pid, None if memory is None else memory * _MEBIBYTE, "compute", None)
                uses.setdefault((ids[0], ids[1]), []).append(row)
        elif len(cells) == 3 and len(words) == 2 and _number(words[0]) is not None and _number(words[1]) is None:
            above = int(words[0]), words[1], cells[1]
        elif len(cells) == 3 and above is not None and len(words) == (2 if numbered else 1):
            chip = _number(words[0])
            number = _number(words[1]) if numbered else above[0]
            if chip is None or number is None or (above[0], chip) in cards:
                return None
            cards[above[0], chip] = _card(number, above[1], above[2], cells[2])
            numbers_of[above[0], chip] = number
            above = None
    if len(set(numbers_of.values())) != len(numbers_of) or not numbers <= set(numbers_of.values()):
        return None
    if not numbered and set(numbers_of.values()) != numbers:
        return None  # without its own column, a card's number is that of the file only where all of them fit
    for key, card in cards.items():
        card.update(uses=sorted(uses.get(key, [])), uses_known=has_lists)
    return sorted((card for card in cards.values() if card["index"] in numbers), key=lambda card: int(card["index"]))


def _card(number: int, name: str, health: str, usage: str) -> dict[str, Any]:
    """`usage`: the busy share, then pairs of memory in use and in all; the last pair, HBM, is nought where there is none."""
    words = usage.replace("/", " / ").split()
    pairs = [
        (_number(words[place - 1]), _number(words[place + 1]))
        for place, word in enumerate(words)
        if word == "/" and 0 < place < len(words) - 1
    ]
    used, total = next((pair for pair in reversed(pairs) if pair[1]), (None, None))
    busy = _number(words[0]) if words else None
    share = busy / 100 if busy is not None and busy <= 100 else None
    notes = [] if health == "OK" else [_("npu-smi calls its health {health}").format(health=health)]
    fits = used is not None and total is not None and used <= total
    return {
        **blank(number),
        "name": f"Ascend {name.removeprefix('Ascend')}",
        "memory_used": used * _MEBIBYTE if used is not None and fits else None,
        "memory_total": None if total is None else total * _MEBIBYTE,
        "utilisation": share,
        "utilisation_max": share,
        "device": f"{ASCEND.numbered}{number}",
        "notes": notes,
        "vendor": ASCEND.name,
    }


def _number(word: str) -> int | None:
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 18 else None
