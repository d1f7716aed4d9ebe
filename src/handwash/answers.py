"""The survey and the verdict as the JSON objects of the contract (`"schema": 1`); keys are the same in every language."""

from __future__ import annotations

from handwash import world
from handwash.model import Gpu, Holder, Job, Judged, Survey, Unknown, Verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from handwash.idle import Doing

SCHEMA = 1


def show(answer: dict[str, Any]) -> None:
    """Prints one object. ASCII only: a job name with escape sequences stays harmless, a lone surrogate valid."""
    import json

    from handwash import render

    render.say(json.dumps({"schema": SCHEMA, **answer}, indent=2))


def where(survey: Survey) -> dict[str, Any]:
    """Null where it could not be told. The host's own name needs no look."""
    node = survey.node
    if isinstance(node, Unknown):
        return {"kind": None, "host": world.host(), "job": None, "container": None, "why": [node.why]}
    return {"kind": node.kind, "host": node.host, "job": node.job, "container": node.container, "why": list(node.why)}


def check(survey: Survey, verdict: Verdict, doing: Sequence[Doing] = ()) -> dict[str, Any]:
    """`doing`: what the GPUs of this shell's job do, as far as that was looked at."""
    judged = survey.processes if isinstance(survey.processes, Unknown) else verdict.judged
    return {
        "verdict": verdict.verdict,
        "node": where(survey),
        "jobs": _look(survey.jobs, job),
        "gpus": _gpus(survey, doing),
        "processes": _look(judged, process),
    }


def visible(survey: Survey) -> dict[str, Any] | None:
    """What CUDA_VISIBLE_DEVICES of this shell means: `order` has the driver's indices in the order of a program's numbers."""
    seen = survey.visibility
    if seen is None or isinstance(survey.gpus, Unknown):
        return None
    return {
        "kind": seen.kind,
        "value": seen.value,
        "order": [survey.gpus[place].index for place in seen.order],
        "rejected": seen.rejected,
        "ignored": list(seen.ignored),
        "certain": seen.certain,
    }


def _gpus(survey: Survey, doing: Sequence[Doing]) -> dict[str, Any]:
    told = {**_look(survey.gpus, gpu), "cause": "", "visible": visible(survey)}
    if isinstance(survey.gpus, Unknown):
        told.update(cause=survey.gpus.cause, items=[gpu(one) for one in survey.gpus_in_part])
    known = {(one.gpu.index, one.gpu.instance): one for one in doing}
    seen = survey.gpus_in_part if isinstance(survey.gpus, Unknown) else survey.gpus
    for one, item in zip(seen, told["items"]):
        item.update(idleness(known.get((one.index, one.instance))))
    return told


def idleness(one: Doing | None) -> dict[str, Any]:
    """Whether a GPU of the job does nothing; null where it cannot be told, and of a GPU that the job does not hold."""
    if one is None:
        return {"idle": None, "idle_s": None, "idle_why": None, "not_busy_since": None}
    return {
        "idle": one.is_idle,
        "idle_s": round(one.over_s, 1) if one.is_idle and one.over_s is not None else None,
        "idle_why": one.word,
        "not_busy_since": None if one.since is None else _iso(one.since),
    }


def _iso(seconds: float) -> str:
    from datetime import datetime, timezone

    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def _look(answer: Any, each: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    if isinstance(answer, Unknown):
        return {"known": False, "why": answer.why, "items": []}
    return {"known": True, "why": None, "items": [each(item) for item in answer]}


def job(row: Job) -> dict[str, Any]:
    return {
        "id": row.id,
        "state": row.state,
        "name": row.name,
        "partition": row.partition,
        "nodes": list(row.nodes),
        "gpus": row.gpus,
        "elapsed_s": row.elapsed_s,
        "limit_s": row.limit_s,
        "gpu_hours": None if row.gpu_hours is None else round(row.gpu_hours, 4),
        "interactive": row.interactive,
    }


def gpu(one: Gpu) -> dict[str, Any]:
    return {
        "index": one.index,
        "uuid": one.uuid,
        "name": one.name,
        "memory_used": one.memory_used,
        "memory_total": one.memory_total,
        "utilisation": _share(one.utilisation),
        "shared": one.shared,
        "vendor": one.vendor,
        "device": one.device or None,
        "node_index": one.node_index,
        "visible_index": one.visible,
        "instance": None if one.instance is None else list(one.instance),
        "utilisation_max": _share(one.utilisation_max),
        "utilisation_over_s": None if one.utilisation_over_s is None else round(one.utilisation_over_s, 1),
        "sharing": list(one.sharing),
        "trouble": list(one.trouble),
        "notes": list(one.notes),
        "holders_known": one.uses_known,
        "holders": [holder(each) for each in one.holders],
    }


def _share(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def holder(one: Holder) -> dict[str, Any]:
    return {
        "pid": one.pid,
        "user": one.user or None,
        "memory": one.memory,
        "kind": one.kind,
        "by": one.by,
        "word": one.word,
    }


def process(one: Judged) -> dict[str, Any]:
    seen = one.process
    return {
        "pid": seen.pid,
        "started": _iso(seen.started),
        "user": seen.user,
        "command": seen.command,
        "job": seen.job,
        "session": seen.session,
        "gpus": list(seen.gpus),
        "devices": list(seen.devices),
        "state": seen.state,
        "ppid": seen.ppid,
        "cpu_s": round(seen.cpu_s, 2),
        "whose": one.whose,
        "fate": one.fate,
        "leftover": one.leftover,
        "why": one.why,
    }
