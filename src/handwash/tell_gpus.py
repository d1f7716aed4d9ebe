"""The GPUs in a person's words: what each is, how full and busy, who is on it, and what is odd about that."""

from __future__ import annotations

from handwash import render, services
from handwash.messages import _, ngettext
from handwash.model import Gpu, Holder, Judged, Process, Survey, Unknown

# Of more holders than these the rest is counted.
_MOST_HOLDERS = 3


def gpu_lines(survey: Survey) -> list[str]:
    """A line for each GPU; where they are unknown, why, and then what is known all the same."""
    if isinstance(survey.gpus, Unknown):
        why = _("could not tell: {why}").format(why=render.harmless(survey.gpus.why, 500))
        return [why, *(gpu_line(gpu, survey) for gpu in survey.gpus_in_part)]
    lines = [gpu_line(gpu, survey) for gpu in survey.gpus] or [_("none visible here")]
    return lines + _visibility(survey)


def _visibility(survey: Survey) -> list[str]:
    """What CUDA_VISIBLE_DEVICES does to programs started here, where it hides GPUs that are not meant to be hidden."""
    seen = survey.visibility
    if seen is None:
        return []
    if seen.kind == "no-dev-files":
        return [_("CUDA_VISIBLE_DEVICES=NoDevFiles: this job asked for no GPU")]
    if seen.kind == "none":
        return [_("CUDA_VISIBLE_DEVICES is set and empty: it hides every GPU from programs started here")]
    if seen.kind == "repeated":
        sentence = _("CUDA_VISIBLE_DEVICES={value} names a GPU twice: programs started here see none")
        return [sentence.format(value=render.harmless(seen.value, 200))]
    if seen.rejected is not None:
        sentence = _(
            "CUDA_VISIBLE_DEVICES={value}: {entry} names no GPU that is here, which hides it and all after it from programs"
        )
        entry = render.harmless(repr(seen.rejected), 80)
        return [sentence.format(value=render.harmless(seen.value, 200), entry=entry)]
    return []


def gpu_line(gpu: Gpu, survey: Survey) -> str:
    """One GPU: what it is, by which numbers it goes, its memory, how busy, and who is on it."""
    name = render.harmless(gpu.name) or (gpu.vendor if gpu.vendor != "NVIDIA" else "GPU")
    # As nvidia-smi heads its columns: GPU instance, compute instance.
    place = "" if gpu.instance is None else f" GI {gpu.instance[0]} CI {gpu.instance[1]}"
    parts = [f"{gpu.index}{place}: {name}", *_numbers(gpu, survey)]
    if gpu.memory_used is not None and gpu.memory_total is not None:
        parts.append(
            _("{used} of {total}").format(used=render.size(gpu.memory_used), total=render.size(gpu.memory_total))
        )
    if gpu.utilisation is not None:
        parts.append(_busy(gpu))
    if gpu.shared:
        how = ", ".join(_sharing(word) for word in gpu.sharing)
        parts.append(_("shared ({how})").format(how=how) if how else _("shared"))
    parts.extend(render.harmless(note) for note in gpu.notes)
    parts.extend(_holders(gpu, survey))
    return ", ".join(parts)


def _numbers(gpu: Gpu, survey: Survey) -> list[str]:
    """The other numbers that it goes by, where they differ from the driver's, which comes first in the line."""
    told = []
    if gpu.node_index != gpu.index:
        told.append(_("number {number} on this node").format(number=gpu.node_index))
    seen = survey.visibility
    if seen is None or seen.kind == "all" or gpu.vendor != "NVIDIA":
        return told
    if gpu.visible is not None and gpu.visible != gpu.index:
        told.append(_("number {number} for programs started here").format(number=gpu.visible))
    elif gpu.visible is None and seen.certain:
        told.append(_("hidden from programs started here"))
    return told


def _busy(gpu: Gpu) -> str:
    percent = round((gpu.utilisation or 0) * 100)
    highest = round((gpu.utilisation_max or 0) * 100)
    if gpu.utilisation_over_s is None or highest == percent:
        return _("{percent} % busy").format(percent=percent)
    sentence = _("{percent} % busy over the last {seconds} s, at most {highest} %")
    return sentence.format(percent=percent, highest=highest, seconds=round(gpu.utilisation_over_s))


def _sharing(word: str) -> str:
    return {
        "mig": _("MIG: a part of a GPU"),
        "mps": _("MPS: the multi-process service"),
        "shard": _("gres/shard: the job holds a part of it"),
    }[word]


def _holders(gpu: Gpu, survey: Survey) -> list[str]:
    """Who is on it: names first, then in numbers what cannot be named."""
    known = {} if isinstance(survey.processes, Unknown) else {one.pid: one for one in survey.processes}
    at_work = [one for one in gpu.holders if one.word in ("", "unlisted", "zombie", "hidden")]
    # A process can be on two MIG instances of a GPU; here it is one name.
    told = [_named(one, known.get(one.pid)) for one in at_work[:_MOST_HOLDERS]]
    if len(at_work) > _MOST_HOLDERS:
        told.append(_("and {count} more").format(count=len(at_work) - _MOST_HOLDERS))
    dead = [str(one.pid) for one in gpu.holders if one.word == "dead"]
    if dead:
        sentence = ngettext(
            "the driver lists a process that is dead ({pids})",
            "the driver lists {count} processes that are dead ({pids})",
            len(dead),
        )
        told.append(sentence.format(count=len(dead), pids=_some(dead)))
    unlisted = sum(one.word == "unlisted" for one in gpu.holders)
    if unlisted:
        sentence = ngettext(
            "{count} holds its device file open and is not in the driver's list",
            "{count} hold its device file open and are not in the driver's list",
            unlisted,
        )
        told.append(sentence.format(count=unlisted))
    foreign = sum(one.word == "foreign" for one in gpu.holders)
    if foreign:
        sentence = ngettext(
            "cannot tell who the process in the driver's list is: its number is not of this container",
            "cannot tell who the {count} processes in the driver's list are: their numbers are not of this container",
            foreign,
        )
        told.append(sentence.format(count=foreign))
    return told


def _named(holder: Holder, process: Process | None) -> str:
    """One holder: number, program, owner, and what marks it."""
    name = "" if process is None else process.name
    owner = render.harmless(holder.user, 32) or _("another user")
    marks = [owner]
    if holder.kind == "mps":
        marks.append(_("MPS client"))
    if process is not None and services.is_kernel(process):
        marks.append(_("a notebook's kernel"))
    if holder.kind == "mps-server":
        marks.append(_("MPS server"))
    if holder.word == "zombie":
        marks.append(_("has ended"))
    if holder.word == "hidden":
        marks.append(_("hidden by /proc"))
    return " ".join(part for part in (str(holder.pid), render.harmless(name, 30), f"({', '.join(marks)})") if part)


def _some(words: list[str]) -> str:
    return ", ".join(words) if len(words) <= _MOST_HOLDERS else ", ".join([*words[:_MOST_HOLDERS], "…"])


def gpu_memory(judged: Judged, survey: Survey) -> int | None:
    """Bytes of GPU memory that a process holds, where the driver says so."""
    gpus = survey.gpus_in_part if isinstance(survey.gpus, Unknown) else survey.gpus
    known = [
        holder.memory
        for gpu in gpus
        for holder in gpu.holders
        if holder.pid == judged.process.pid and holder.word != "foreign"
    ]
    amounts = [memory for memory in known if memory is not None]
    return sum(amounts) if amounts else None
