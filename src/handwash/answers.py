"""The survey and the verdict as the JSON objects of the contract (`"schema": 1`); keys are the same in every language."""

from __future__ import annotations

from handwash import world
from handwash.model import Gpu, Holder, Job, Judged, Survey, Unknown, Verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

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


def check(survey: Survey, verdict: Verdict) -> dict[str, Any]:
    judged = survey.processes if isinstance(survey.processes, Unknown) else verdict.judged
    return {
        "verdict": verdict.verdict,
        "node": where(survey),
        "jobs": _look(survey.jobs, job),
        "gpus": _gpus(survey),
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


def _gpus(survey: Survey) -> dict[str, Any]:
    told = {**_look(survey.gpus, gpu), "cause": "", "visible": visible(survey)}
    if isinstance(survey.gpus, Unknown):
        told.update(cause=survey.gpus.cause, items=[gpu(one) for one in survey.gpus_in_part])
    return told


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
    from datetime import datetime, timezone

    seen = one.process
    return {
        "pid": seen.pid,
        "started": datetime.fromtimestamp(seen.started, timezone.utc).isoformat(timespec="milliseconds"),
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
