"""The look that needs no vendor library: the accelerators' device files, and which of them a process holds open.

A process with a context on an accelerator holds its device files open, in a container too, and after its parent died.
"""

from __future__ import annotations

import os

from handwash.frozen import frozen


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
KFD = Vendor("AMD or Hygon", "/dev/dri/renderD", ("/dev/kfd",), "/dev/kfd")
VENDORS = (
    NVIDIA,
    KFD,
    Vendor("Ascend", "/dev/davinci", ("/dev/davinci_manager",), ""),
    Vendor("Cambricon", "/dev/cambricon_dev", (), ""),
)
_SHARED = frozenset(path for vendor in VENDORS for path in vendor.shared)
# What every path of the table begins with: one test of a link's target throws out nearly all of a process's files.
_BEGINNINGS = ("/dev/nvidia", "/dev/kfd", "/dev/dri/renderD", "/dev/davinci", "/dev/cambricon_dev")
_DELETED = " (deleted)"


def vendor_and_number(path: str) -> tuple[Vendor, int] | None:
    """The vendor and the number of a numbered device file, None for any other file."""
    for vendor in VENDORS:
        if path.startswith(vendor.numbered):
            digits = path[len(vendor.numbered) :]
            if digits.isascii() and digits.isdigit():
                return vendor, int(digits)
    return None


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
    found = {"/dev/" + name for name in _names(dev)}
    if KFD.context in found:
        found.update(f"/dev/dri/{name}" for name in _names(f"{dev}/dri"))
    return _accelerators({path for path in found if path.startswith(_BEGINNINGS)})


def holds_context(devices: tuple[str, ...]) -> bool:
    """Whether who holds these files computes on an accelerator; a monitor (nvidia-smi, nvitop) opens no `-uvm`."""
    for path in devices:
        if path == NVIDIA.context or path == KFD.context:
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
        _text(f"{folder}/{name}/vendor").startswith("0x10de") and _text(f"{folder}/{name}/class").startswith("0x03")
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
    if KFD.context not in kept:
        # A render node alone is a display's business: browsers and X hold one on any workstation.
        kept = {path: place for path, place in kept.items() if place[0] != KFD.numbered}
    return tuple(sorted(kept, key=lambda path: kept[path]))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(64).decode("ascii", "replace")
    except OSError:
        return ""
