"""A program that runs on this node: whether it can hold a GPU here, and who is billed for it. Pure."""

from __future__ import annotations

from handwash.cost.verdict import IF_USED, NO, UNKNOWN, Cost
from handwash.messages import _, ngettext
from handwash.model import Unknown
from handwash.survey import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Union

    from handwash.cost.sources import Here
    from handwash.model import Gpu, Job


def program(name: str, env: Mapping[str, str], seen: Here) -> Cost:
    """The verdict on a program of which nothing is known but that it runs here, with this environment."""
    node = seen.node
    if not isinstance(node, Unknown) and node.kind == "compute" and node.job is not None:
        return _in_a_job(name, node.job, env, seen)
    place = _place(seen)
    reachable = _reachable(env, seen)
    if reachable == 0:
        hidden = not isinstance(seen.gpus, Unknown) and bool(seen.gpus)
        reason = (
            _("CUDA_VISIBLE_DEVICES={value} hides every GPU from what is started here.").format(
                value=env.get(visible.VARIABLE, "")
            )
            if hidden
            else _("There is no GPU here to be used.")
        )
        return Cost(NO, (reason, *place))
    if reachable is None:
        return Cost(UNKNOWN, place, (seen.gpus.why,) if isinstance(seen.gpus, Unknown) else ())
    return Cost(IF_USED, (*_occupied(name, reachable), *place), gpus_here=reachable)


def _occupied(name: str, reachable: int) -> tuple[str, ...]:
    has = ngettext(
        "This node has {count} GPU that it can reach.", "This node has {count} GPUs that it can reach.", reachable
    )
    return (
        has.format(count=reachable),
        _(
            "{program} occupies one from the moment at which it makes a CUDA context, as tensor.cuda() does, until it ends. "
            "import torch alone makes none, nor does torch.cuda.is_available() in recent releases."
        ).format(program=name),
    )


def _place(seen: Here) -> tuple[str, ...]:
    node = seen.node
    if isinstance(node, Unknown):
        return (node.why,)
    if node.kind == "login":
        return (
            _("{host} is a login node: what runs on it is in no job, and no GPU-hours are billed.").format(
                host=node.host
            ),
        )
    if node.kind == "allocation-shell":
        sentence = _(
            "This shell is still on the login node: only srun reaches the GPUs of your job {job}, which is billed meanwhile."
        )
        return (sentence.format(job=node.job),)
    if node.kind == "compute":
        sentence = _("This shell is in no job of yours: nobody is billed, but a GPU is taken from whoever holds it.")
        return (sentence,)
    return (_("There is no batch scheduler here that would bill it."),)


def _in_a_job(name: str, job: str, env: Mapping[str, str], seen: Here) -> Cost:
    row = None if isinstance(seen.jobs, Unknown) else next((one for one in seen.jobs if one.number == job), None)
    if row is not None and row.gpus == 0:
        reachable = _reachable(env, seen)
        if reachable:
            not_its = _("Job {job} holds no GPU: one that it occupies here is another's.").format(job=job)
            return Cost(IF_USED, (*_occupied(name, reachable), not_its), gpus_here=reachable)
        return Cost(NO, (_("Job {job} holds no GPU, and none can be reached.").format(job=job),))
    return Cost(
        NO, (_("It runs inside your job {job} and costs nothing more than that.").format(job=job), rate(job, row))
    )


def rate(job: str, row: Union[Job, None]) -> str:
    """What a job costs as it is."""
    if row is None or row.gpus is None:
        sentence = _("Job {job} is billed for the GPUs that it holds until it ends, whether they are used or not.")
        return sentence.format(job=job)
    if row.gpus == 0:
        return _("Job {job} holds no GPU and costs no GPU-hours.").format(job=job)
    sentence = ngettext(
        "Job {job} holds {count} GPU and is billed {count} GPU-hour each hour until it ends, whether it is used or not.",
        "Job {job} holds {count} GPUs and is billed {count} GPU-hours each hour until it ends, whether they are used or not.",
        row.gpus,
    )
    return sentence.format(job=job, count=row.gpus)


def _reachable(env: Mapping[str, str], seen: Here) -> int | None:
    """How many GPUs of this node a program with this environment can reach; None where that could not be told."""
    gpus: tuple[Gpu, ...] = seen.gpus_in_part if isinstance(seen.gpus, Unknown) else seen.gpus
    if isinstance(seen.gpus, Unknown) and not gpus:
        return None
    others = sum(gpu.vendor != "NVIDIA" for gpu in gpus)
    if isinstance(seen.gpus, Unknown):
        # What the variable's entries name cannot be told; that it is empty can.
        hidden = not env.get(visible.VARIABLE, "all").strip()
        return others if hidden else len(gpus)
    return others + len(visible.read(env, gpus).order)
