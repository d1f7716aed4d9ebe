"""AMD's and Hygon's GPUs by the kernel's own word: the compute driver's folders in /sys need no vendor library.

After drivers/gpu/drm/amd/amdkfd of Linux (kfd_topology.c, kfd_process.c; the folder of processes is there since 5.6), from
which Hygon's driver descends. The folders can be read by everybody; a GPU that the control group hides cannot.
"""

from __future__ import annotations

import os

from handwash.accelerators.device_files import names, text
from handwash.messages import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_VENDORS = {0x1002: "AMD", 0x1D94: "Hygon"}  # PCI's numbers, in decimal in a node's properties


def look(sysfs: str = "/sys") -> list[dict[str, Any]] | None:
    """The GPUs in the driver's order with the fields of `model.Gpu`; None where this driver is not here."""
    folder = f"{sysfs}/class/kfd/kfd"
    nodes = sorted(int(name) for name in names(f"{folder}/topology/nodes") if name.isascii() and name.isdigit())
    if not nodes:
        return None
    on_gpu = _processes(f"{folder}/proc")
    found: list[dict[str, Any]] = []
    for node in nodes:
        place = f"{folder}/topology/nodes/{node}"
        gpu_id = _number(text(f"{place}/gpu_id"))
        if gpu_id:  # 0: a processor
            properties = _properties(text(f"{place}/properties"))
            uses = None if on_gpu is None else on_gpu.get(gpu_id, [])
            found.append(_gpu(sysfs, len(found), properties, uses))
    return found


def _gpu(sysfs: str, index: int, properties: dict[str, int], uses: list[Any] | None) -> dict[str, Any]:
    render = properties.get("drm_render_minor", 0)
    device = f"{sysfs}/class/drm/renderD{render}/device"
    used, total, busy = (
        _number(text(f"{device}/{name}")) if render > 0 else None
        for name in ("mem_info_vram_used", "mem_info_vram_total", "gpu_busy_percent")
    )
    vendor = _VENDORS.get(properties.get("vendor_id", 0), "AMD or Hygon")
    notes = []
    if used is not None and total is not None and used > total:
        used = None
        notes.append(_("The driver's answer about GPU {index} makes no sense.").format(index=index))
    unique = properties.get("unique_id", 0)
    share = busy / 100 if busy is not None and busy <= 100 else None
    return {
        "index": index,
        "uuid": f"GPU-{unique:016x}" if unique else "",  # as AMD's runtime writes it
        "name": text(f"{device}/product_name").strip() if render > 0 else "",
        "memory_used": used,
        "memory_total": total,
        "utilisation": share,
        "utilisation_max": share,
        "shared": False,
        "minor": None,
        "device": f"/dev/dri/renderD{render}" if render > 0 else "",
        "uses": uses or [],
        "uses_known": uses is not None,
        "notes": notes,
        "vendor": vendor,
    }


def _processes(folder: str) -> dict[int, list[Any]] | None:
    """GPU id to its processes as rows of pid, memory, kind and instance, by pid; None where the kernel tells of none.

    There is a `vram_` file for every GPU, used or not: who has neither memory nor a queue on one is not on it.
    """
    try:
        pids = sorted(int(name) for name in os.listdir(folder) if name.isascii() and name.isdigit())
    except OSError:
        return None
    found: dict[int, list[Any]] = {}
    for pid in pids:
        place = f"{folder}/{pid}"
        memory: dict[int, int] = {}
        for name in names(place):
            of = _number(name[len("vram_") :]) if name.startswith("vram_") else None
            amount = None if of is None else _number(text(f"{place}/{name}"))
            if of is not None and amount is not None:
                memory[of] = amount
        queues = {_number(text(f"{place}/queues/{queue}/gpuid")) for queue in names(f"{place}/queues")}
        for gpu_id in sorted({one for one, amount in memory.items() if amount} | {one for one in queues if one}):
            found.setdefault(gpu_id, []).append((pid, memory.get(gpu_id), "compute", None))
    return found


def _properties(content: str) -> dict[str, int]:
    """A node's properties: a name and a number in each line."""
    found = {}
    for line in content.splitlines():
        name, _blank, number = line.partition(" ")
        value = _number(number)
        if value is not None:
            found[name] = value
    return found


def _number(content: str) -> int | None:
    digits = content.strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 20:
        return None
    return int(digits)
