"""Who is on a GPU by the driver's own lists, three of them, of three versions (NVML, nvml.h)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from handwash.accelerators.nvml_gpu import Asker

# More than any node has: a count beyond it is nonsense from a broken library.
_MOST_PROCESSES = 100_000
_INSUFFICIENT_SIZE = 7
_FUNCTION_NOT_FOUND = 13
_NOT_AVAILABLE = (1 << 64) - 1
_NOT_MIG = 0xFFFFFFFF
# In the order of what they say: a client of the multi-process service can be in the compute list too, a program that
# computes and draws in the first and the last.
_LISTS = (("MPSCompute", "mps"), ("Compute", "compute"), ("Graphics", "graphics"))


def processes(nvml: Any, ask: Asker, handle: Any, driver: str) -> list[tuple[int, int | None, str, int, int]] | None:
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
