"""The NVIDIA driver's own word, by NVML through nvidia-ml-py: the GPUs, how full and busy they are, and who is on them.

`look` belongs into a child process with a deadline (`run.looks`): on a wedged driver nvmlInit sleeps for ever in the
kernel, and a library that does not fit the driver can crash. nvmlShutdown is not called: the child's end does it.
"""

from __future__ import annotations

import os

from handwash import world
from handwash.accelerators import bindings
from handwash.messages import _
from handwash.run import CouldNotTell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

LIBRARY = "libnvidia-ml.so.1"
# The hooks start handwash without the person's LD_LIBRARY_PATH, which may hide Python's own libraries, and hand it on here.
_PUT_ASIDE = "HANDWASH_LD_LIBRARY_PATH"
# Where glibc looks without a cache (ld.so(8)), and the place of the Windows subsystem's driver.
_DEFAULT_FOLDERS = (
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib",
    "/usr/lib/wsl/lib",
)
# More than any node has: counts beyond these are nonsense from a broken library.
_MOST_GPUS = 512
_MOST_PROCESSES = 100_000
# nvmlReturn_t of NVIDIA's nvml.h. The numbers, because older releases of nvidia-ml-py lack some of the names.
_NOT_SUPPORTED = 3
_NO_PERMISSION = 4
_INSUFFICIENT_SIZE = 7
_DRIVER_NOT_LOADED = 9
_LIBRARY_NOT_FOUND = 12
_FUNCTION_NOT_FOUND = 13
_GPU_IS_LOST = 15
_RESET_REQUIRED = 16
_VERSION_MISMATCH = 18
_ARGUMENT_VERSION_MISMATCH = 25
_NOT_AVAILABLE = (1 << 64) - 1
_NOT_MIG = 0xFFFFFFFF
# In the order of what they say: a client of the multi-process service can be in the compute list too, a program that
# computes and draws in the first and the last.
_LISTS = (("MPSCompute", "mps"), ("Compute", "compute"), ("Graphics", "graphics"))


class DriverNotLoaded(CouldNotTell):
    """The library is here and finds no driver: true on a node without any GPU as well."""


def library_present(cache: str = "/etc/ld.so.cache", folders: Iterable[str] = _DEFAULT_FOLDERS) -> bool:
    """Whether the loader would find the driver's library; asks the files, because ctypes costs half a bare start."""
    if _in_folders(world.env.get("LD_LIBRARY_PATH", "")) or _in_folders(world.env.get(_PUT_ASIDE, "")):
        return True
    try:
        with open(cache, "rb") as file:
            if LIBRARY.encode() in file.read():
                return True
    except OSError:
        pass
    return any(os.path.exists(f"{folder}/{LIBRARY}") for folder in folders)


def _in_folders(path: str) -> str | None:
    """The library's first place in a list of folders as LD_LIBRARY_PATH has it (ld.so(8): colons or semicolons)."""
    places = (f"{folder}/{LIBRARY}" for folder in path.replace(";", ":").split(":") if folder)
    return next((place for place in places if os.path.exists(place)), None)


def look() -> dict[str, Any]:
    """All GPUs that the driver shows, as plain data. Raises CouldNotTell where the driver as a whole gives no answer.

    `driver`: its version; `gpus`: one dictionary for each GPU with the fields of `model.Gpu`, where `uses` has rows of
    pid, memory, kind and instance. Trouble with one GPU is told in its `notes` and leaves the others as they are.
    """
    nvml = bindings.load()
    put_aside = _in_folders(world.env.get(_PUT_ASIDE, ""))
    try:
        if put_aside:
            from ctypes import CDLL

            nvml.nvmlLib = CDLL(put_aside)
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        raise _no_answer(error) from None
    except OSError:
        raise CouldNotTell(
            _("The NVIDIA driver's library ({library}) cannot be loaded.").format(library=LIBRARY)
        ) from None
    if not 0 <= count <= _MOST_GPUS:
        raise CouldNotTell(_("The NVIDIA driver's answer makes no sense: {count} GPUs.").format(count=count))
    try:
        driver = nvml.nvmlSystemGetDriverVersion()
    except (nvml.NVMLError, UnicodeDecodeError):
        driver = ""
    return {"driver": driver, "gpus": [_look_at(nvml, index, driver) for index in range(count)]}


def _no_answer(error: Any) -> CouldNotTell:
    """The reason in words for an error (its number is NVML's) that stops the whole look."""
    code = error.value
    if code == _DRIVER_NOT_LOADED:
        return DriverNotLoaded(_("The NVIDIA driver is not loaded on this node."))
    if code == _VERSION_MISMATCH:
        return CouldNotTell(
            _(
                "The NVIDIA driver and its library are of different versions: "
                "the node has not been rebooted since the driver was updated."
            )
        )
    if code == _LIBRARY_NOT_FOUND:
        if library_present():
            return CouldNotTell(_("The NVIDIA driver's library ({library}) cannot be loaded.").format(library=LIBRARY))
        return CouldNotTell(_("The NVIDIA driver's library ({library}) is missing.").format(library=LIBRARY))
    if code == _NO_PERMISSION:
        return CouldNotTell(_("No permission to ask the NVIDIA driver."))
    if code == _FUNCTION_NOT_FOUND:
        return CouldNotTell(_("The NVIDIA driver is too old to be asked: its library lacks a function."))
    if code == _GPU_IS_LOST:
        return CouldNotTell(_("The NVIDIA driver has lost a GPU and gives no answer: tell the administrator."))
    return CouldNotTell(_("The NVIDIA driver gives no answer: {error}.").format(error=_words(error)))


class _Asker:
    """Asks about one GPU: turns errors into None and a note, and stops asking once the GPU is lost."""

    def __init__(self, nvml: Any, index: int) -> None:
        self.nvml = nvml
        self.index = index
        self.lost = False
        self.notes: list[str] = []

    def __call__(self, question: Callable[..., Any], *values: Any) -> Any:
        if self.lost:
            return None
        try:
            return question(*values)
        except self.nvml.NVMLError as error:
            self._note(error)
        except (UnicodeDecodeError, ValueError, OverflowError, MemoryError):
            self._add(_("The driver's answer about GPU {index} makes no sense.").format(index=self.index))
        return None

    def _note(self, error: Any) -> None:
        code = error.value
        if code in (_NOT_SUPPORTED, _FUNCTION_NOT_FOUND):
            return  # not supported, or a function that this driver does not have: there is nothing to tell
        if code == _GPU_IS_LOST:
            self.lost = True
            self._add(
                _("GPU {index} is lost: it has fallen off the bus. Tell the administrator.").format(index=self.index)
            )
        elif code == _RESET_REQUIRED:
            self.lost = True
            self._add(_("GPU {index} needs a reset. Tell the administrator.").format(index=self.index))
        elif code == _NO_PERMISSION:
            self._add(_("There is no permission to ask for all about GPU {index}.").format(index=self.index))
        else:
            self._add(
                _("The driver could not tell all about GPU {index}: {error}.").format(
                    index=self.index, error=_words(error)
                )
            )

    def _add(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def _look_at(nvml: Any, index: int, driver: str) -> dict[str, Any]:
    ask = _Asker(nvml, index)
    gpu: dict[str, Any] = {
        "index": index,
        "uuid": "",
        "name": "",
        "memory_used": None,
        "memory_total": None,
        "utilisation": None,
        "shared": False,
        "minor": None,
        "device": "",
        "uses": [],
        "uses_known": False,
    }
    handle = ask(nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is not None:
        gpu["uuid"] = ask(nvml.nvmlDeviceGetUUID, handle) or ""
        gpu["name"] = ask(nvml.nvmlDeviceGetName, handle) or ""
        gpu["minor"] = ask(nvml.nvmlDeviceGetMinorNumber, handle)
        if gpu["minor"] is not None:
            gpu["device"] = f"/dev/nvidia{gpu['minor']}"
        mig = bool((ask(nvml.nvmlDeviceGetMigMode, handle) or [0])[0])
        used, total = _memory(nvml, ask, handle)
        # With MIG on, drivers answer "not supported" or a nought that means nothing.
        utilisation = None if mig else _utilisation(nvml, ask, handle)
        rows = _processes(nvml, ask, handle, driver)
        if ask.lost:
            # Half of an answer from before the loss would look like an idle GPU.
            used = total = utilisation = rows = None
        gpu.update(memory_used=used, memory_total=total, utilisation=utilisation)
        gpu.update(uses=join(rows or ()), uses_known=rows is not None)
        gpu["shared"] = mig or any(kind == "mps" for _pid, _memory, kind, _instance in gpu["uses"])
        if gpu["uses"] and has_wrong_lists(driver):
            ask.notes.append(
                _("Driver {version} is one of those (535.43 to 535.85) that can name wrong processes.").format(
                    version=driver
                )
            )
    gpu["notes"] = ask.notes
    return gpu


def _memory(nvml: Any, ask: _Asker, handle: Any) -> tuple[int | None, int | None]:
    """Bytes in use and in all. The old call counts as used what the driver keeps for itself (since 510): new one first."""

    def newest(handle: Any) -> Any:
        try:
            return nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
        except nvml.NVMLError as error:
            if error.value not in (_NOT_SUPPORTED, _FUNCTION_NOT_FOUND, _ARGUMENT_VERSION_MISMATCH):
                raise
            return nvml.nvmlDeviceGetMemoryInfo(handle)

    memory = ask(newest, handle)
    if memory is None or memory.total == _NOT_AVAILABLE:
        return None, None
    return (memory.used if memory.used <= memory.total else None), memory.total


def _utilisation(nvml: Any, ask: _Asker, handle: Any) -> float | None:
    """The share of the driver's last sampling period (a sixth of a second to a second) in which the GPU was busy."""
    rates = ask(nvml.nvmlDeviceGetUtilizationRates, handle)
    return rates.gpu / 100 if rates is not None and rates.gpu <= 100 else None


def _processes(nvml: Any, ask: _Asker, handle: Any, driver: str) -> list[tuple[int, int | None, str, int, int]] | None:
    """Rows of all three lists (pid, memory, kind, GPU instance, compute instance); None where there is no answer."""
    # On those drivers the rows of `_v3` are longer than they are documented; `_v2` has kept its layout.
    versions = ("_v2", "_v3", "") if has_wrong_lists(driver) else ("_v3", "_v2", "")
    rows: list[tuple[int, int | None, str, int, int]] = []
    for name, kind in _LISTS:
        found = ask(_list, nvml, handle, [f"nvmlDeviceGet{name}RunningProcesses{version}" for version in versions])
        if found is None:
            if kind == "compute" or ask.lost:
                return None
            continue
        rows += [(pid, memory, kind, gpu_instance, instance) for pid, memory, gpu_instance, instance in found]
    return rows


def _list(nvml: Any, handle: Any, symbols: list[str]) -> list[tuple[int, int, int, int]] | None:
    """One process list by the first of `symbols` that this driver has, asked again while it outgrows the room offered.

    nvidia-ml-py's own wrappers give up when it grows, and before release 12.550 exist for `_v3` alone.
    """
    import ctypes

    for symbol in symbols:
        try:
            call = nvml._nvmlGetFunctionPointer(symbol)
        except nvml.NVMLError as error:
            if error.value == _FUNCTION_NOT_FOUND:
                continue
            raise
        fields = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong)]
        if symbol.endswith(("_v2", "_v3")):  # the first version, before driver 450, knows nothing of MIG
            fields += [("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]
        layout: Any = type("ProcessInfo", (ctypes.Structure,), {"_fields_": fields})
        count = ctypes.c_uint(0)
        rows: Any = ()
        code = call(handle, ctypes.byref(count), None)
        for _attempt in range(4):
            if code != _INSUFFICIENT_SIZE:
                break
            if count.value > _MOST_PROCESSES:
                raise ValueError(count.value)
            count.value = count.value * 2 + 5
            rows = (layout * count.value)()
            code = call(handle, ctypes.byref(count), rows)
        if code == _FUNCTION_NOT_FOUND:
            continue
        if code:
            raise nvml.NVMLError(code)
        return [
            (row.pid, row.memory, getattr(row, "gpu_instance", _NOT_MIG), getattr(row, "compute_instance", _NOT_MIG))
            for row in rows[: count.value]
        ]
    return None


def join(
    rows: Iterable[tuple[int, int | None, str, int, int]],
) -> list[tuple[int, int | None, str, tuple[int, int] | None]]:
    """One row for each process (and MIG instance), by pid: the kind of the first list with it, the most memory told."""
    joined: dict[tuple[int, tuple[int, int] | None], tuple[int | None, str]] = {}
    for pid, memory, kind, gpu_instance, compute_instance in rows:
        instance = None if gpu_instance == _NOT_MIG else (gpu_instance, compute_instance)
        known = None if memory is None or memory == _NOT_AVAILABLE else memory
        if (pid, instance) in joined:
            before, kind = joined[pid, instance]
            known = before if known is None or (before is not None and before > known) else known
        joined[pid, instance] = (known, kind)
    return [
        (pid, memory, kind, instance)
        for (pid, instance), (memory, kind) in sorted(joined.items(), key=lambda item: (item[0][0], item[0][1] or ()))
    ]


def has_wrong_lists(driver: str) -> bool:
    """Whether this is one of the drivers 535.43 to 535.85, whose `_v3` process lists have a layout of their own."""
    major, _dot, rest = driver.partition(".")
    minor = rest.partition(".")[0]
    return major == "535" and minor.isascii() and minor.isdigit() and 43 <= int(minor) <= 85


def _words(error: Any) -> str:
    try:
        return str(error)
    except UnicodeDecodeError:
        return str(error.value)
