"""Which GPUs are here and who is on them: the driver's word, the kernel's, else the device files."""

from __future__ import annotations

import os

from handwash import patience, run, schedulers, world
from handwash.accelerators import device_files, nvml
from handwash.messages import _
from handwash.model import Gpu, GpuUse, Unknown
from handwash.schedulers.base import Scheduler
from handwash.survey import processes, procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Union

NOTHING: dict[str, Any] = {"driver": "", "gpus": [], "why": None, "cause": ""}


def nothing_here() -> bool:
    """Whether this node plainly has no accelerator: neither a device file nor the NVIDIA driver's library."""
    return not device_files.present() and not nvml.library_present()


def look(sysfs: str = "/sys") -> dict[str, Any]:
    """The GPUs as plain data, for a child process with a deadline; `why` and `cause` as in `nvml.look`."""
    files = device_files.present()
    answer = _nvidia(tuple(path for path in files if device_files.gpu_minor(path) is not None))
    others = None
    if device_files.KFD.context in files:
        from handwash.accelerators import kfd

        others = kfd.look(sysfs)
    rest = [path for path in files if device_files.gpu_minor(path) is None]
    if others is not None:
        # The kernel's word is all: a render node that it does not name is a display's.
        rest = [path for path in rest if not path.startswith(device_files.KFD.numbered)]
    cards = [path for path in rest if device_files.is_numbered(path, device_files.ASCEND)]
    told = None
    if cards:
        from handwash.accelerators import ascend

        told = ascend.look(cards)
    if told is not None:
        rest = [path for path in rest if path not in cards]
    by_file = by_device_file(rest, beside=files)
    return {**answer, "gpus": answer["gpus"] + (others or []) + (told or []) + by_file}


def _nvidia(files: tuple[str, ...]) -> dict[str, Any]:
    if not nvml.library_present():
        note = _("known by its device file only: the driver's library ({library}) is missing")
        return {**NOTHING, "gpus": by_device_file(files, note.format(library=nvml.LIBRARY))}
    seen = nvml.look()
    if seen["cause"] == "driver-not-loaded" and not files and device_files.nvidia_hardware() is False:
        # Clusters boot login nodes from the image of the compute nodes, library and all: with no GPU on the PCI bus
        # there is none to be told about. Anywhere else the driver should be there, and what it holds is unknown.
        return NOTHING
    if seen["why"]:
        told = {gpu["device"] for gpu in seen["gpus"]}
        seen["gpus"] = seen["gpus"] + by_device_file([path for path in files if path not in told])
    return seen


def by_device_file(files: Sequence[str], note: str = "", beside: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The GPUs that numbered device files stand for; of a GPU known by its file alone there is nothing more to tell."""
    found = []
    for path in files:
        numbered = device_files.vendor_and_number(path, beside)
        if numbered is None:
            continue
        vendor, number = numbered
        # Render nodes are counted from 128 (drm(7)); the other files from 0.
        index = number - 128 if vendor.numbered == device_files.KFD.numbered and number >= 128 else number
        found.append(
            {
                **device_files.blank(index),
                "minor": number if vendor is device_files.NVIDIA else None,
                "device": path,
                "notes": [note or _("known by its device file only")],
                "vendor": vendor.name,
            }
        )
    return found


def named_in(gpus: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[int, tuple[str, str]]]:
    """The processes of a look's lists, described, and those that cannot be: dead, or hidden by /proc (hidepid), and whose.

    In a container the driver's numbers are the host's, and mean somebody else here: then nobody is described.
    """
    if not procfs.is_host_namespace():
        return [], {}
    owners = {pid: procfs.owner(pid) for pid in sorted({use[0] for gpu in gpus for use in gpu["uses"]})}
    rows = _described(tuple(owners.items()))
    described: list[dict[str, Any]] = []
    missing: dict[int, tuple[str, str]] = {}
    for (pid, uid), row in zip(owners.items(), rows):
        if row is not None:
            described.append(row)
        else:
            user = _unseen(pid)
            # With hidepid=1 the owner can still be seen.
            missing[pid] = ("dead", "") if user is None else ("hidden", user if uid is None else world.user_name(uid))
    return described, missing


def _described(named: Sequence[tuple[int, int | None]]) -> Sequence[dict[str, Any] | None]:
    """Each process, by pid and uid; None where there is no uid, or no process any more."""
    boot = world.boot_time()

    def each(here: Scheduler) -> Sequence[dict[str, Any] | None]:
        def whole(one: tuple[int, int | None], unread: bool = False) -> dict[str, Any] | None:
            pid, uid = one
            return None if uid is None else processes.describe(pid, uid, boot, here, unread)

        return patience.each(named, whole, lambda one: whole(one, unread=True))

    left = run.left()
    if not named or left is None or not schedulers.is_of_the_site():
        return each(schedulers.loaded())
    # A module of the site's that hangs, or fails, is no driver that does: then nobody says which jobs they are of.
    found: Union[Sequence[dict[str, Any] | None], Unknown] = run.looks(
        {"": lambda: each(schedulers.loaded())}, left / 2
    )[""]
    return each(Scheduler()) if isinstance(found, Unknown) else found


def _unseen(pid: int) -> str | None:
    """Whose a process is that /proc does not show (proc(5), hidepid=2): the person's own, or "" for another's.

    None where there is none. Signal 0 is not sent; one's own are hidden too if they are not dumpable.
    """
    if not 0 < pid < 1 << 31:
        return None
    try:
        os.kill(pid, 0)
    except PermissionError:
        return ""
    except OSError:
        return None
    return world.user_name(world.uid())


def read(plain: Sequence[dict[str, Any]]) -> tuple[Gpu, ...]:
    """The GPUs of a look's answer as records."""
    return tuple(
        Gpu(
            **{
                **gpu,
                "uses": tuple(
                    GpuUse(pid, memory, kind, None if instance is None else tuple(instance))
                    for pid, memory, kind, instance in gpu["uses"]
                ),
                **{name: tuple(gpu.get(name, ())) for name in ("notes", "trouble", "sharing")},
                "instance": None if gpu.get("instance") is None else tuple(gpu["instance"]),
            }
        )
        for gpu in plain
    )


def indices_of(devices: Sequence[str], gpus: Sequence[Gpu]) -> tuple[int, ...]:
    """The indices of the GPUs whose device files are among `devices`; the driver's order need not be that of the files."""
    held = set(devices)
    return tuple(sorted({gpu.index for gpu in gpus if gpu.device in held}))
