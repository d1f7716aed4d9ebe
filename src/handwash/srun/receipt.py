"""The one line that safe-srun says at the end. It never says more than what was seen."""

from __future__ import annotations

import os

from handwash.messages import _, ngettext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from handwash.schedulers.slurm_step import Target
    from handwash.srun.confirm import Confirmation


def processes(ended: int, killed: int, left: Iterable[tuple[int, str]]) -> str:
    """What became of the processes that outlived the command."""
    left = list(left)
    stuck = could_not_end(left) if left else ""
    if not ended and stuck:
        return _("could not be ended: {stuck}").format(stuck=stuck)
    if not ended:
        text = _("nothing was left running")
    elif killed:
        text = ngettext(
            "{count} process ended ({killed} needed KILL)", "{count} processes ended ({killed} needed KILL)", ended
        ).format(count=ended, killed=killed)
    else:
        text = ngettext("{count} process ended", "{count} processes ended", ended).format(count=ended)
    return _("{text}; could not be ended: {stuck}").format(text=text, stuck=stuck) if stuck else text


def could_not_end(left: Iterable[tuple[int, str]]) -> str:
    """Pids and reasons, in the words of `clean`. What that needs is loaded here only."""
    from handwash.srun import stuck

    return stuck.reasons(left)


def queue(target: Target, done: Confirmation) -> str:
    """What squeue said last."""
    from handwash.schedulers.slurm_step import GONE, THERE

    word = done.answer.word
    if word == GONE and target.own:
        return (
            _("the job has left the queue") if not done.cancelled else _("the job was cancelled and has left the queue")
        )
    if word == GONE:
        return _("the step has ended") if not done.cancelled else _("the step was cancelled and has ended")
    if word == THERE and target.own:
        return _("the job is still in the queue ({state}): try `scancel {job}`").format(
            state=done.answer.detail, job=" ".join(target.jobs)
        )
    if word == THERE:
        return _("the step is still in the queue: try `scancel {step}`").format(step=" ".join(target.steps))
    if target.own:
        return _("could not tell whether the job has left the queue ({why})").format(why=done.answer.detail)
    return _("could not tell whether the step has ended ({why})").format(why=done.answer.detail)


def say_to_send(left: Iterable[tuple[str, int, str, str]], job: str = "") -> None:
    """What to send to the administrator about processes that hang in the kernel; rows as in `PartWord.stuck`."""
    left = list(left)
    if left:
        from handwash.srun import stuck

        for text in stuck.for_administrator(left, job):
            say(text)


def silent_nodes(count: int) -> str:
    """Nodes whose guardian gave no last word."""
    return ngettext(
        "no word from {count} node, so its processes were not confirmed",
        "no word from {count} nodes, so their processes were not confirmed",
        count,
    ).format(count=count)


def cost(gpus: int | None, seconds: float) -> str:
    """GPU-hours of the job; empty for a job without GPUs."""
    if gpus is None:
        return _("GPU-hours unknown (the number of GPUs could not be told)")
    if not gpus:
        return ""
    return _("{hours} GPU-hours ({gpus} × {duration})").format(
        hours=f"{gpus * max(seconds, 0.0) / 3600:.3f}", gpus=gpus, duration=duration(seconds)
    )


def duration(seconds: float) -> str:
    """Hours, minutes and seconds as Slurm writes them."""
    whole = max(int(seconds + 0.5), 0)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def line(*clauses: str, about: str = "") -> str:
    """The clauses as one line, about a job if it is, made harmless: words of Slurm's commands are in it."""
    text = (f"{about}: " if about else "") + "; ".join(clause for clause in clauses if clause)
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def say(*clauses: str, about: str = "") -> None:
    """One line on standard error; a closed terminal is no error."""
    try:
        os.write(2, f"handwash: {line(*clauses, about=about)}\n".encode("utf-8", "replace"))
    except OSError:
        pass


def terminal() -> str:
    """The terminal on standard error; empty where that is none."""
    try:
        return os.ttyname(2) if os.isatty(2) else ""
    except OSError:
        return ""


def say_fault(error: Exception) -> None:
    """One line where handwash itself failed."""
    say(_("a fault in handwash, not confirmed yet: {error}").format(error=f"{type(error).__name__}: {error}"))
