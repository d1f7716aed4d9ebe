"""`handwash doctor`: why is no GPU visible, what is wrong with the set-up, and what to type next."""

from __future__ import annotations

import sys

from handwash import answers, render, schedulers, tell
from handwash.config import Config
from handwash.doctor import collect, findings
from handwash.doctor.evidence import Evidence, Finding
from handwash.exits import Exit
from handwash.messages import _, ngettext
from handwash.model import Unknown
from handwash.render import harmless

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def doctor(settings: Config, as_json: bool) -> int:
    """0 no problem · 1 a problem was found · 3 none was found, and not everything could be looked at."""
    evidence = collect.take(settings)
    found = findings.findings(evidence)
    unsure = findings.unsure(evidence)
    if as_json:
        answers.show(_json(evidence, found, unsure))
    else:
        _tell(evidence, found, unsure)
    if any(one.severity == "problem" for one in found):
        return Exit.FOUND
    return Exit.UNKNOWN if unsure else Exit.CLEAN


def _json(evidence: Evidence, found: tuple[Finding, ...], unsure: tuple[str, ...]) -> dict[str, Any]:
    partitions = () if isinstance(evidence.partitions, Unknown) else evidence.partitions or ()
    return {
        "nvidia_smi": None if isinstance(evidence.smi, Unknown) else evidence.smi.outcome,
        "findings": [
            {
                "id": one.id,
                "severity": one.severity,
                "what": one.what,
                "evidence": one.evidence,
                "remedy": one.remedy,
            }
            for one in found
        ],
        "unknown": list(unsure),
        "partitions": [
            {"name": one.name, "default": one.default, "gpus": one.gpus, "idle": one.idle, "limit_s": one.limit_s}
            for one in partitions
        ],
        "try": findings.try_line(evidence),
    }


def _tell(evidence: Evidence, found: tuple[Finding, ...], unsure: tuple[str, ...]) -> None:
    render.say(tell.place(evidence.survey.node))
    if not isinstance(evidence.smi, Unknown):
        render.say(_outcome(evidence.smi.outcome, evidence.smi.gpus or 0))
    for one in found:
        render.say()
        mark, colour = (_("problem"), "red") if one.severity == "problem" else (_("notice"), "yellow")
        render.say(render.style(f"[{mark}]", colour, sys.stdout) + f" {harmless(one.what, 600)} ({one.id})")
        render.say("    " + _("seen: {evidence}").format(evidence=harmless(one.evidence, 600)))
        render.say("    " + _("next: {remedy}").format(remedy=harmless(one.remedy, 600)))
    render.say()
    for why in unsure:
        render.say(_("could not tell: {why}").format(why=harmless(why, 600)))
    if not any(one.severity == "problem" for one in found) and not unsure:
        render.say(render.style(_("No problem was found."), "green", sys.stdout))
    if not isinstance(evidence.survey.node, Unknown) and evidence.survey.node.kind == "login":
        _how_to_get_one(evidence)


def _outcome(word: str, gpus: int) -> str:
    if word == "gpus":
        return ngettext("nvidia-smi shows {count} GPU.", "nvidia-smi shows {count} GPUs.", gpus).format(count=gpus)
    return {
        "missing": _("nvidia-smi is not found here."),
        "no-gpu": _("nvidia-smi runs and shows no GPU."),
        "no-answer": _("nvidia-smi gives no answer."),
    }.get(word, _("nvidia-smi fails."))


def _how_to_get_one(evidence: Evidence) -> None:
    """Where GPUs are, how many are idle now, and the line to type."""
    if evidence.partitions is None or isinstance(evidence.partitions, Unknown):
        return
    if not evidence.partitions:
        render.say(_("{scheduler} shows no GPUs that you may use.").format(scheduler=schedulers.here().name))
        return
    render.say(_("GPUs on this cluster:"))
    for one in evidence.partitions:
        if not one.name:
            sentence = _("  {idle} of {gpus} GPUs idle now")
        elif schedulers.here().divided_by == "queue":
            sentence = _("  queue {name}: {idle} of {gpus} GPUs idle now")
        else:
            sentence = _("  partition {name}: {idle} of {gpus} GPUs idle now")
        render.say(sentence.format(name=harmless(one.name, 60), idle=one.idle, gpus=one.gpus))
    best = findings.best(evidence)
    line = findings.try_line(evidence)
    if best is not None and line is not None:
        wait = "" if best.idle else " " + _("(none is idle now: it will wait in the queue)")
        render.say(_("To get one:") + wait)
        render.say("  " + harmless(line, 500))
