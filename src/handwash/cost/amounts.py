"""The amounts in an option's value: times, node counts, generic resources, arrays, as Slurm reads them. Pure."""

from __future__ import annotations

import re

from handwash.frozen import frozen
from handwash.messages import _
from handwash.schedulers.slurm import GPU_NAMES, PART_NAMES
from handwash.schedulers.slurm_limits import NO_GPUS

# Enough for any count of Slurm's, and short enough for int() and for arithmetic.
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_MINUTES = re.compile(r"([0-9]{1,9})(?::([0-9]{1,9}))?", re.ASCII)
_HOURS = re.compile(r"([0-9]{1,9}):([0-9]{1,9}):([0-9]{1,9})", re.ASCII)
_DAYS = re.compile(r"([0-9]{1,9})-(?:([0-9]{1,9})(?::([0-9]{1,9})(?::([0-9]{1,9}))?)?)?", re.ASCII)
_COUNT = re.compile(r"([0-9]{1,9})([kKmMgGtTpP]?)", re.ASCII)
_SUFFIXES = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
# The largest MaxArraySize that slurm.conf(5) allows, less one.
_LAST_INDEX = 4000000


class Unreadable(Exception):
    """A value that Slurm would refuse, or that is not known here. Its text is a whole sentence for the person."""


@frozen
class Gres:
    """What a list of generic resources asks for: whole GPUs, and parts of GPUs: shards, and MPS per cent.

    `strange`: a resource that is not known here, and may be a GPU by another name; or "".
    """

    gpus: int = 0
    shards: int = 0
    mps: int = 0
    strange: str = ""

    def any(self) -> bool:
        return bool(self.gpus or self.shards or self.mps)


def time_limit(text: str) -> int | None:
    """Seconds of a --time, whole minutes as Slurm rounds it up; None for no limit (UNLIMITED, INFINITE, -1, 0).

    sbatch(1), --time: `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M`, `D-H:M:S`; rounding and 0 as in parse_time.c and slurm_opt.c.
    """
    if text.upper() in ("UNLIMITED", "INFINITE", "-1"):
        return None
    found = _MINUTES.fullmatch(text)
    if found:
        seconds = int(found[1]) * 60 + int(found[2] or 0)
    elif found := _HOURS.fullmatch(text):
        seconds = int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3])
    elif found := _DAYS.fullmatch(text):
        seconds = int(found[1]) * 86400 + int(found[2] or 0) * 3600 + int(found[3] or 0) * 60 + int(found[4] or 0)
    else:
        raise Unreadable(_("--time={value} is no time that Slurm can read.").format(value=text))
    return -(-seconds // 60) * 60 or None


def node_range(text: str) -> tuple[int, int]:
    """The smallest and the largest number of nodes that a --nodes allows: `4`, `1-4`, `2-8:2`, `1,2,4`, `1k`."""
    bad = Unreadable(_("--nodes={value} is no number of nodes that Slurm can read.").format(value=text))
    if "," in text or ":" in text:
        counts: list[int] = []
        for item in text.split(","):
            first, dash, last = item.partition("-")
            last, colon, step = last.partition(":")
            if not all(
                _NUMBER.fullmatch(part) for part in (first, *((last,) if dash else ()), *((step,) if colon else ()))
            ):
                raise bad
            low, high, by = int(first), int(last or first), int(step or 1)
            if high < low or not by:
                raise bad
            counts += [low, high - (high - low) % by]
        low, high = min(counts), max(counts)
    else:
        first, dash, last = text.partition("-")
        low = _count(first, bad)
        high = _count(last, bad) if dash else low
    if not low or high < low:
        raise bad
    return low, high


def number(option: str, text: str) -> int:
    """A whole number above 0, as --ntasks takes it."""
    if not _NUMBER.fullmatch(text) or not int(text):
        raise Unreadable(_("--{option}={value} is no number above 0.").format(option=option, value=text))
    return int(text)


def _count(text: str, bad: Unreadable) -> int:
    found = _COUNT.fullmatch(text)
    if not found:
        raise bad
    return int(found[1]) * 1024 ** _SUFFIXES[found[2].lower()]  # type: ignore[no-any-return]


def gres(text: str, option: str = "gres", prefix: str = "") -> Gres:
    """What a list like `gpu:a100:2,shard:4,tmpdisk:1G` asks for; resources that are known to be no GPUs are passed over.

    `prefix` is put before each item: the value of --gpus leaves `gpu:` out. slurm_get_next_tres: the count comes last, after
    `:` or `=`, and is 1 where what comes last is a type.
    """
    if text.lower() == "none":
        return Gres()
    found = dict.fromkeys((*GPU_NAMES, *PART_NAMES), 0)
    strange = ""
    for item in text.split(","):
        item = item.strip()
        if not item:
            continue
        words = re.split("[:=]", re.sub(r"^gres[/:]", "", prefix + item))
        name = words[0]
        if name not in found:
            counted = len(words) > 1 and words[-1] in ("0", "")
            strange = strange or ("" if counted or name.lower() in NO_GPUS else name)
            continue
        bad = Unreadable(
            _("--{option}={value} is no list of resources that Slurm can read.").format(option=option, value=text)
        )
        if not all(words) or len(words) > 3:
            raise bad
        counted = len(words) > 1 and words[-1][0] in "0123456789"
        if len(words) == 3 and not counted:
            raise bad
        found[name] += _count(words[-1], bad) if counted else 1
    return Gres(sum(found[name] for name in GPU_NAMES), found["shard"], found["mps"], strange)


def gres_of_tres(text: str) -> Gres:
    """The generic resources in a --tres-per-task: `cpu:4,gres/gpu:a100:2`, also with `=` before the count."""
    wanted = [item.strip() for item in text.split(",") if item.strip().startswith(("gres/", "gres:"))]
    return gres(",".join(wanted), "tres-per-task")


def array(text: str) -> tuple[int, int | None]:
    """How many tasks an --array has, and how many of them may run at once (None: all): `0-9`, `1,3,5-20:5%4`."""
    bad = Unreadable(_("--array={value} is no array that Slurm can read.").format(value=text))
    ranges: list[range] = []
    for item in text.split(","):
        item = item.partition("%")[0].strip("[]")
        if not item and ranges:
            continue
        found = re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7})(?::([0-9]{1,7}))?)?", item, re.ASCII)
        if not found:
            raise bad
        first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        if last < first or not step or last > _LAST_INDEX:
            raise bad
        ranges.append(range(first, last + 1, step))
    marks = bytearray(max(one[-1] for one in ranges) + 1)
    for one in ranges:
        marks[one.start : one.stop : one.step] = b"\1" * len(one)
    # The first one counts, for the whole array (sbatch(1), --array).
    throttle = re.match("[0-9]{1,9}", text.partition("%")[2], re.ASCII)
    return marks.count(1), (int(throttle[0]) or None) if throttle else None
