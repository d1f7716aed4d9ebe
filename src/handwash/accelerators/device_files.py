"""The look that needs no vendor library: the accelerators' device files, and which of them a process holds open.

A process with a context on an accelerator holds its device files open, in a container too, and after its parent died.
"""

from __future__ import annotations

import os

from handwash.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


@frozen
class Vendor:
    """One vendor's device files. `numbered`: the beginning of those with a number, one for each device.

    `shared`: those that serve all devices. `context`: the one that only a program with a compute context opens, or ""
    where no such file is known: then whoever holds a numbered one counts.
    """

    name: str
    numbered: str
    shared: tuple[str, ...]
    context: str


NVIDIA = Vendor("NVIDIA", "/dev/nvidia", ("/dev/nvidiactl", "/dev/nvidia-uvm"), "/dev/nvidia-uvm")
_RENDER = "/dev/dri/renderD"
# Hygon's driver is a descendant of AMD's and adds the second file.
KFD = Vendor("AMD or Hygon", _RENDER, ("/dev/kfd", "/dev/mkfd"), "/dev/kfd")
METAX = Vendor("MetaX", _RENDER, ("/dev/mxcd",), "/dev/mxcd")
ASCEND = Vendor("Ascend", "/dev/davinci", ("/dev/davinci_manager",), "")
VENDORS = (
    NVIDIA,
    KFD,
    METAX,
    ASCEND,
    Vendor("Cambricon", "/dev/cambricon_dev", ("/dev/cambricon_ctl",), ""),
    Vendor("Moore Threads", "/dev/mtgpu.", (), ""),
    Vendor("Iluvatar", "/dev/iluvatar", (), ""),
    # Beside it lie `/dev/gcu0vid1` and the like, the video codecs of the card: no part of the table.
    Vendor("Enflame", "/dev/gcu", (), ""),
    Vendor("Kunlunxin", "/dev/xpu", ("/dev/xpuctrl",), ""),
)
_SHARED = frozenset(path for vendor in VENDORS for path in vendor.shared)
_CONTEXTS = frozenset(vendor.context for vendor in VENDORS if vendor.context)
# What every path of the table begins with: one test of a link's target throws out nearly all of a process's files.
_BEGINNINGS = tuple({vendor.numbered for vendor in VENDORS} | _SHARED)
_DELETED = " (deleted)"


def vendor_and_number(path: str, beside: Iterable[str] = ()) -> tuple[Vendor, int] | None:
    """The vendor and the number of a numbered device file, None for any other file.

    A render node is that vendor's whose own file is among those `beside` it; with none, it is taken for the first's.
    """
    for vendor in VENDORS:
        if path.startswith(vendor.numbered):
            digits = path[len(vendor.numbered) :]
            if digits.isascii() and digits.isdigit():
                if vendor is KFD and METAX.context in beside and KFD.context not in beside:
                    vendor = METAX
                return vendor, int(digits)
    return None


def is_numbered(path: str, vendor: Vendor) -> bool:
    """Whether this is one of a vendor's numbered device files."""
    found = vendor_and_number(path)
    return found is not None and found[0] is vendor


def gpu_minor(path: str) -> int | None:
    """The minor number in the path of an NVIDIA GPU's device file, None for any other file."""
    found = vendor_and_number(path)
    return found[1] if found and found[0] is NVIDIA else None


def devices_of(pid: int, root: str = "/proc") -> tuple[str, ...] | None:
    """The accelerators' device files that a process holds open, in order; None where its open files may not be seen.

    Another person's process, and one that is not dumpable, keep theirs to themselves (proc(5), ptrace access mode).
    """
    folder = f"{root}/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    found = set()
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue  # closed since
        if target.startswith(_BEGINNINGS):
            found.add(target)
    return _accelerators(found) if found else ()


def present(dev: str = "/dev") -> tuple[str, ...]:
    """The accelerators' device files of this node, in order, under the names that programs open them by."""
    found = {"/dev/" + name for name in names(dev)}
    if found & {KFD.context, METAX.context}:
        found.update(f"/dev/dri/{name}" for name in names(f"{dev}/dri"))
    return _accelerators({path for path in found if path.startswith(_BEGINNINGS)})


def holds_context(devices: tuple[str, ...]) -> bool:
    """Whether who holds these files computes on an accelerator; a monitor (nvidia-smi, nvitop) opens no `-uvm`."""
    for path in devices:
        if path in _CONTEXTS:
            return True
        found = vendor_and_number(path)
        if found and not found[0].context:
            return True
    return False


def nvidia_hardware(sysfs: str = "/sys") -> bool | None:
    """Whether the PCI bus has a display controller of NVIDIA's, driver or not; None where the bus cannot be seen."""
    folder = f"{sysfs}/bus/pci/devices"
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    # 0x10de: NVIDIA; class 0x03: VGA (0x0300) and 3D (0x0302) controllers. Its NVSwitches are bridges, class 0x06.
    return any(
        text(f"{folder}/{name}/vendor").startswith("0x10de") and text(f"{folder}/{name}/class").startswith("0x03")
        for name in names
    )


def _accelerators(paths: set[str]) -> tuple[str, ...]:
    """Those of `paths` that the table has, sorted, numbers as numbers."""
    kept: dict[str, tuple[str, int]] = {}
    for path in paths:
        if path.endswith(_DELETED):
            # The kernel's mark for a file that was removed while held open.
            path = path[: -len(_DELETED)]
        found = vendor_and_number(path)
        if found:
            kept[path] = (found[0].numbered, found[1])
        elif path in _SHARED:
            kept[path] = (path, 0)
    if not kept.keys() & {KFD.context, METAX.context}:
        # A render node alone is a display's business: browsers and X hold one on any workstation.
        kept = {path: place for path, place in kept.items() if place[0] != _RENDER}
    return tuple(sorted(kept, key=lambda path: kept[path]))


def names(folder: str) -> list[str]:
    """What is in a folder, nothing where it is not there or not ours to read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def text(path: str) -> str:
    """The content of a small file of /sys, "" where it is not there or not ours to read."""
    try:
        with open(path, "rb") as file:
            return file.read(4096).decode("ascii", "replace")
    except OSError:
        return ""


def blank(index: int) -> dict[str, Any]:
    """A GPU of which nothing is known yet, with the fields of `model.Gpu`."""
    return {
        "index": index,
        "uuid": "",
        "name": "",
        "memory_used": None,
        "memory_total": None,
        "utilisation": None,
        "shared": False,
        "sharing": [],
        "minor": None,
        "device": "",
        "uses": [],
        "uses_known": False,
        "notes": [],
    }
