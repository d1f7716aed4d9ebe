"""One GPU by NVML: its memory, how busy it was, its MIG instances. An answer that fails costs its own value alone."""

from __future__ import annotations

from handwash import world
from handwash.accelerators import device_files, nvml_lists
from handwash.messages import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# nvmlReturn_t of NVIDIA's nvml.h. The numbers, because older releases of nvidia-ml-py lack some of the names.
_NOT_SUPPORTED = 3
_NO_PERMISSION = 4
_NOT_FOUND = 6
_FUNCTION_NOT_FOUND = 13
_GPU_IS_LOST = 15
_RESET_REQUIRED = 16
_ARGUMENT_VERSION_MISMATCH = 25
_NOT_AVAILABLE = (1 << 64) - 1
_GPU_UTILIZATION_SAMPLES = 1  # nvmlSamplingType_t
# What the driver kept from before it slept says nothing about now, and neither do samples of which the last one is old.
_OLDEST_SAMPLE_S = 60.0
_NEWEST_SAMPLE_S = 5.0
# Above every GPU's own limit (7 today).
_MOST_INSTANCES = 64


class Asker:
    """Asks about one GPU: turns errors into None and a note, and stops asking once the GPU is lost."""

    def __init__(self, nvml: Any, index: int) -> None:
        self.nvml = nvml
        self.index = index
        self.lost = False
        self.notes: list[str] = []
        self.trouble: list[str] = []

    def __call__(self, question: Callable[..., Any], *values: Any) -> Any:
        if self.lost:
            return None
        try:
            return question(*values)
        except self.nvml.NVMLError as error:
            self._note(error)
        except (UnicodeDecodeError, ValueError, OverflowError, MemoryError):
            self.add(_("The driver's answer about GPU {index} makes no sense.").format(index=self.index))
        return None

    def _note(self, error: Any) -> None:
        code = error.value
        if code in (_NOT_SUPPORTED, _FUNCTION_NOT_FOUND):
            return  # not supported, or a function that this driver does not have: there is nothing to tell
        if code == _GPU_IS_LOST:
            self.lost = True
            self.trouble.append("lost")
            self.add(
                _("GPU {index} is lost: it has fallen off the bus. Tell the administrator.").format(index=self.index)
            )
        elif code == _RESET_REQUIRED:
            self.lost = True
            self.trouble.append("reset")
            self.add(_("GPU {index} needs a reset. Tell the administrator.").format(index=self.index))
        elif code == _NO_PERMISSION:
            self.add(_("There is no permission to ask for all about GPU {index}.").format(index=self.index))
        else:
            self.add(
                _("The driver could not tell all about GPU {index}: {error}.").format(
                    index=self.index, error=words(error)
                )
            )

    def add(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def look_at(nvml: Any, index: int, driver: str) -> list[dict[str, Any]]:
    """The GPU, or in its place its MIG instances, as far as the driver shows any."""
    ask = Asker(nvml, index)
    gpu = device_files.blank(index)
    handle = ask(nvml.nvmlDeviceGetHandleByIndex, index)
    instances: list[dict[str, Any]] = []
    if handle is not None:
        gpu["uuid"] = ask(nvml.nvmlDeviceGetUUID, handle) or ""
        gpu["name"] = ask(nvml.nvmlDeviceGetName, handle) or ""
        gpu["minor"] = ask(nvml.nvmlDeviceGetMinorNumber, handle)
        if gpu["minor"] is not None:
            gpu["device"] = f"/dev/nvidia{gpu['minor']}"
        mig = bool((ask(nvml.nvmlDeviceGetMigMode, handle) or [0])[0])
        used, total = _memory(nvml, ask, handle)
        rows = nvml_lists.processes(nvml, ask, handle, driver)
        # With MIG on, drivers answer "not supported" or a nought that means nothing.
        busy = (None, None, None) if mig else _utilisation(nvml, ask, handle, alone=not rows)
        if mig:
            instances = _instances(nvml, ask, handle, gpu)
        if ask.lost:
            # Half of an answer from before the loss would look like an idle GPU.
            used = total = rows = None
            busy, instances = (None, None, None), []
        uses = nvml_lists.join(rows or ())
        gpu.update(memory_used=used, memory_total=total, uses=uses, uses_known=rows is not None)
        gpu.update(zip(("utilisation", "utilisation_max", "utilisation_over_s"), busy))
        gpu["sharing"] = [word for word, is_so in (("mig", mig), ("mps", _has_clients(uses))) if is_so]
        if uses and nvml_lists.has_wrong_lists(driver):
            ask.add(
                _("Driver {version} is one of those (535.43 to 535.85) that can name wrong processes.").format(
                    version=driver
                )
            )
    gpu.update(notes=ask.notes, trouble=ask.trouble, shared=bool(gpu["sharing"]))
    return _shared_out(gpu, instances) if instances else [gpu]


def _has_clients(uses: list[Any]) -> bool:
    return any(kind == "mps" for _pid, _memory, kind, _instance in uses)


def _instances(nvml: Any, ask: Asker, handle: Any, gpu: dict[str, Any]) -> list[dict[str, Any]]:
    """The MIG instances that the driver shows: in a job those that the job may use."""

    def instance_at(place: int) -> Any:
        try:
            return nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except nvml.NVMLError as error:
            if error.value == _NOT_FOUND:  # no instance in this place; the places need not be filled in order
                return None
            raise

    found = []
    for place in range(min(ask(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0, _MOST_INSTANCES)):
        instance = ask(instance_at, place)
        if instance is None:
            continue
        ids = ask(nvml.nvmlDeviceGetGpuInstanceId, instance), ask(nvml.nvmlDeviceGetComputeInstanceId, instance)
        if None in ids:
            continue
        used, total = _memory(nvml, ask, instance)
        found.append(
            {
                **gpu,
                "uuid": ask(nvml.nvmlDeviceGetUUID, instance) or "",
                "name": ask(nvml.nvmlDeviceGetName, instance) or gpu["name"],
                "memory_used": used,
                "memory_total": total,
                "instance": ids,
            }
        )
    return found


def _shared_out(gpu: dict[str, Any], instances: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The instances, each with its own processes; the GPU before them only where a process is on none of them.

    That can be another job's instance, which the driver does not show here.
    """
    rest = [use for use in gpu["uses"] if use[3] not in {one["instance"] for one in instances}]
    told = []
    for one in instances:
        uses = [use for use in gpu["uses"] if use[3] == one["instance"]]
        sharing = ["mig", "mps"] if _has_clients(uses) else ["mig"]
        told.append({**one, "uses": uses, "uses_known": gpu["uses_known"], "sharing": sharing, "shared": True})
    if rest:
        return [{**gpu, "uses": rest}, *told]
    told[0].update(notes=gpu["notes"], trouble=gpu["trouble"])
    return told


def _memory(nvml: Any, ask: Asker, handle: Any) -> tuple[int | None, int | None]:
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


def _utilisation(nvml: Any, ask: Asker, handle: Any, alone: bool) -> tuple[float | None, float | None, float | None]:
    """How busy it was: mean and highest of the driver's samples and the seconds that they cover, else the last instant alone.

    The driver keeps some twenty seconds of samples; its other call speaks of the last one, a sixth of a second to a second.
    `alone`: nobody is on the GPU.
    """

    def samples(handle: Any) -> list[tuple[int, int]]:
        try:
            kind, found = nvml.nvmlDeviceGetSamples(handle, _GPU_UTILIZATION_SAMPLES, 0)
        except nvml.NVMLError as error:
            if error.value == _NOT_FOUND:  # none since the driver woke
                return []
            raise
        member = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal"}.get(kind)  # nvmlValueType_t
        return [(one.timeStamp, getattr(one.sampleValue, member)) for one in found] if member else []

    now = world.now() * 1e6  # their times are in microseconds
    kept = sorted(
        (time, share)
        for time, share in ask(samples, handle) or ()
        if -_OLDEST_SAMPLE_S < (time - now) / 1e6 < 1 and 0 <= share <= 100
    )
    if len(kept) > 1 and kept[-1][0] > max(kept[0][0], now - _NEWEST_SAMPLE_S * 1e6):
        span = (kept[-1][0] - kept[0][0]) / 1e6
        shares = [share / 100 for _time, share in kept]
        return sum(shares) / len(shares), max(shares), span * len(kept) / (len(kept) - 1)
    rates = ask(nvml.nvmlDeviceGetUtilizationRates, handle)
    if rates is None or rates.gpu > 100:
        return None, None, None
    if rates.gpu >= 99 and alone and ask(nvml.nvmlDeviceGetPersistenceMode, handle) == 0:
        # Without persistence mode the driver wakes the GPU for the question, and calls that busy.
        return None, None, None
    return rates.gpu / 100, rates.gpu / 100, None


def words(error: Any) -> str:
    """What the driver says of its error; its number where that cannot be read."""
    try:
        return str(error)
    except UnicodeDecodeError:
        return str(error.value)
