"""The GPUs in a person's words: what each is, how full and busy, who is on it, and what is odd about that."""

from __future__ import annotations

from handwash import render
from handwash.messages import _
from handwash.model import Gpu, Judged, Survey, Unknown


def gpu_line(gpu: Gpu, survey: Survey) -> str:
    """One GPU: what it is, its memory, how busy, and who is on it."""
    parts = [f"{gpu.index}: {render.harmless(gpu.name) or 'GPU'}"]
    if gpu.memory_used is not None and gpu.memory_total is not None:
        parts.append(
            _("{used} of {total}").format(used=render.size(gpu.memory_used), total=render.size(gpu.memory_total))
        )
    if gpu.utilisation is not None:
        parts.append(_("{percent} % busy").format(percent=round(gpu.utilisation * 100)))
    if gpu.shared:
        parts.append(_("shared"))
    parts.extend(render.harmless(note) for note in gpu.notes)
    holders = [] if isinstance(survey.processes, Unknown) else [p for p in survey.processes if gpu.index in p.gpus]
    for process in holders[:3]:
        parts.append(f"{process.pid} {render.harmless(process.name, 30)} ({render.harmless(process.user, 32)})")
    if len(holders) > 3:
        parts.append(_("and {count} more").format(count=len(holders) - 3))
    return ", ".join(parts)


def gpu_memory(judged: Judged, survey: Survey) -> int | None:
    """Bytes of GPU memory that a process holds, where the driver says so."""
    if isinstance(survey.gpus, Unknown):
        return None
    known = [use.memory for gpu in survey.gpus for use in gpu.uses if use.pid == judged.process.pid]
    amounts = [memory for memory in known if memory is not None]
    return sum(amounts) if amounts else None
