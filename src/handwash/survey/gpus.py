"""Which GPUs are here and who is on them: the driver's word, else the device files."""

from __future__ import annotations

from handwash.accelerators import device_files, nvml
from handwash.messages import _
from handwash.model import Gpu, GpuUse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

NOTHING: dict[str, Any] = {"driver": "", "gpus": []}


def nothing_here() -> bool:
    """Whether this node plainly has no accelerator: neither a device file nor the NVIDIA driver's library."""
    return not device_files.present() and not nvml.library_present()


def look() -> dict[str, Any]:
    """The GPUs as plain data, for a child process with a deadline. Raises CouldNotTell."""
    files = device_files.present()
    if not nvml.library_present():
        return {"driver": "", "gpus": by_device_file(files)}
    try:
        seen = nvml.look()
    except nvml.DriverNotLoaded:
        # Clusters boot login nodes from the image of the compute nodes, library and all: with no GPU on the PCI bus
        # there is none to be told about. Anywhere else the driver should be there, and what it holds is unknown.
        if files or device_files.nvidia_hardware() is not False:
            raise
        return NOTHING
    others = tuple(path for path in files if device_files.gpu_minor(path) is None)
    return {"driver": seen["driver"], "gpus": seen["gpus"] + by_device_file(others)}


def by_device_file(files: Sequence[str]) -> list[dict[str, Any]]:
    """The GPUs that numbered device files stand for; of a GPU known by its file alone there is nothing more to tell."""
    found = []
    for path in files:
        numbered = device_files.vendor_and_number(path)
        if numbered is None:
            continue
        vendor, number = numbered
        nvidia = vendor is device_files.NVIDIA
        found.append(
            {
                # Render nodes are counted from 128 (drm(7)); the other vendors' files from 0.
                "index": number - 128 if vendor is device_files.KFD and number >= 128 else number,
                "uuid": "",
                "name": "",
                "memory_used": None,
                "memory_total": None,
                "utilisation": None,
                "shared": False,
                "minor": number if nvidia else None,
                "device": path,
                "uses": [],
                "uses_known": False,
                "notes": [
                    _("known by its device file only: the driver's library ({library}) is missing").format(
                        library=nvml.LIBRARY
                    )
                    if nvidia
                    else _("known by its device file only")
                ],
            }
        )
    return found


def read(plain: dict[str, Any]) -> tuple[Gpu, ...]:
    """The look's answer as records."""
    return tuple(
        Gpu(
            **{
                **gpu,
                "uses": tuple(
                    GpuUse(pid, memory, kind, None if instance is None else tuple(instance))
                    for pid, memory, kind, instance in gpu["uses"]
                ),
                "notes": tuple(gpu["notes"]),
            }
        )
        for gpu in plain["gpus"]
    )


def indices_of(devices: Sequence[str], gpus: Sequence[Gpu]) -> tuple[int, ...]:
    """The indices of the GPUs whose device files are among `devices`; the driver's order need not be that of the files."""
    held = set(devices)
    return tuple(sorted({gpu.index for gpu in gpus if gpu.device in held}))
