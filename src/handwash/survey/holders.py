"""Who is on each GPU: the driver's lists and the open device files, joined, with a word where the two disagree. Pure."""

from __future__ import annotations

from handwash.frozen import replace
from handwash.messages import _
from handwash.model import Gpu, GpuUse, Holder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_MPS_SERVER = "nvidia-cuda-mps-server"
# A context alone takes more than 100 MiB; less is what the driver keeps for itself.
_NO_CONTEXT = 64 << 20
_NOT_AT_WORK = ("dead", "zombie", "monitor", "elsewhere")


def join(
    gpus: Sequence[Gpu], rows: Mapping[int, Mapping[str, Any]], missing: Mapping[int, tuple[str, str]], host: bool
) -> tuple[Gpu, ...]:
    """The GPUs with their `holders`.

    `rows`: processes by pid as the looks describe them; `missing`: what became of listed ones that are not among them.
    `host`: whether the driver's numbers are those of this PID namespace.
    """
    listed: dict[int, set[int]] = {}
    for gpu in gpus if host else ():
        for use in gpu.uses:
            listed.setdefault(use.pid, set()).add(gpu.index)
    by_device: dict[str, list[int]] = {}
    for pid, row in rows.items():
        for path in row["devices"]:
            by_device.setdefault(path, []).append(pid)
    entries: dict[str, int] = {}
    for gpu in gpus:
        entries[gpu.device] = entries.get(gpu.device, 0) + 1
    joined = []
    for gpu in gpus:
        holding = set(by_device.get(gpu.device, ()))
        found = [_listed(use, rows, missing, host, use.pid in holding) for use in gpu.uses]
        if entries[gpu.device] == 1:  # with several MIG instances the file does not say which
            known = {use.pid for use in gpu.uses} if host else set()
            found += [_unlisted(pid, rows[pid], gpu, host and bool(listed.get(pid))) for pid in sorted(holding - known)]
        joined.append(_judged(replace(gpu, holders=tuple(found)), rows))
    return tuple(joined)


def _listed(
    use: GpuUse,
    rows: Mapping[int, Mapping[str, Any]],
    missing: Mapping[int, tuple[str, str]],
    host: bool,
    holding: bool,
) -> Holder:
    if not host:
        return Holder(use.pid, use.memory, use.kind, "driver", "foreign")
    row = rows.get(use.pid)
    if row is None:
        return Holder(use.pid, use.memory, use.kind, "driver", *missing.get(use.pid, ("dead", "")))
    kind = "mps-server" if row["name"] == _MPS_SERVER else use.kind
    word = "zombie" if row["state"] in ("Z", "X") else ""
    return Holder(use.pid, use.memory, kind, "both" if holding else "driver", word, row["user"])


def _unlisted(pid: int, row: Mapping[str, Any], gpu: Gpu, elsewhere: bool) -> Holder:
    if not row["computes"]:
        word = "monitor"
    elif elsewhere:
        word = "elsewhere"  # a program opens the files of all GPUs that it is shown, and computes on some
    else:
        word = "unlisted" if gpu.uses_known else ""
    return Holder(pid, None, "mps-server" if row["name"] == _MPS_SERVER else "", "files", word, row["user"])


def _judged(gpu: Gpu, rows: Mapping[int, Mapping[str, Any]]) -> Gpu:
    """With the service that shares it, if one does, and with the word for one that is busy with nothing."""
    if "mps" not in gpu.sharing and any(holder.kind == "mps-server" for holder in gpu.holders):
        gpu = replace(gpu, sharing=(*gpu.sharing, "mps"), shared=True)
    at_work = any(holder.word not in _NOT_AT_WORK for holder in gpu.holders)
    busy = gpu.utilisation is not None and gpu.utilisation >= 0.99
    empty = gpu.memory_used is not None and gpu.memory_used < _NO_CONTEXT
    if busy and empty and gpu.uses_known and not at_work and gpu.instance is None:
        note = _("GPU {index} is wedged: 100 % busy, with no memory in use and nobody on it. Tell the administrator.")
        gpu = replace(gpu, trouble=(*gpu.trouble, "wedged"), notes=(*gpu.notes, note.format(index=gpu.index)))
    return gpu
