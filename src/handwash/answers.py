"""The survey and the verdict as the JSON objects of the contract (`"schema": 1`); keys are the same in every language."""

from __future__ import annotations

from handwash.model import Gpu, Job, Judged, Survey, Unknown, Verdict

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
    node = survey.node
    if isinstance(node, Unknown):
        return {"kind": None, "host": None, "job": None, "container": None, "why": [node.why]}
    return {"kind": node.kind, "host": node.host, "job": node.job, "container": node.container, "why": list(node.why)}


def check(survey: Survey, verdict: Verdict) -> dict[str, Any]:
    judged = survey.processes if isinstance(survey.processes, Unknown) else verdict.judged
    return {
        "verdict": verdict.verdict,
        "node": where(survey),
        "jobs": _look(survey.jobs, job),
        "gpus": _look(survey.gpus, gpu),
        "processes": _look(judged, process),
    }


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
        "utilisation": one.utilisation,
        "shared": one.shared,
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
        "whose": one.whose,
        "fate": one.fate,
        "leftover": one.leftover,
        "why": one.why,
    }
