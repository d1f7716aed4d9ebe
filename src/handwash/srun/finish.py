"""What safe-srun does when srun has ended: confirms, waits for the nodes' words, closes the record and says the receipt."""

from __future__ import annotations

import os

from handwash import siteinfo, world
from handwash.messages import _
from handwash.srun import receipt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from handwash.srun import keeper, record
    from handwash.srun.arguments import CommandLine


def finish(line: CommandLine, plan: keeper.Plan, main: record.Main, link: keeper.Link, status: int) -> None:
    """Confirms, waits for the nodes' words, closes the record and says the receipt."""
    from handwash.schedulers.slurm_step import GONE
    from handwash.srun import confirm, keeper, record

    report = link.report()
    if report is None:
        report = report_of_parts(record.parts_of(plan.session, main.where))
    if report is None:
        finish_unreported(plan, main, link, status)
        return
    target = plan.target(report)
    done = confirm.confirm(target, urgent=os.WIFSIGNALED(status))
    words, silent = keeper.wait_for_words(plan, report, main.where, done.answer.word == GONE)
    outcome = keeper.outcome(plan, done, words, silent)
    left = [(pid, why) for word in words for pid, _start, why in word.left]
    ended = sum(word.ended for word in words)
    what = ""
    if not plan.supervised:
        what = _("processes were not looked at")
    elif ended or left or not silent:
        what = receipt.processes(ended, sum(word.killed for word in words), left)
    said = receipt.line(
        what,
        receipt.silent_nodes(silent) if silent else "",
        "" if all(word.complete or word.cgroup for word in words) else _("could not tell whether all of it has ended"),
        receipt.queue(target, done),
        receipt.cost(link.gpus(), world.now() - report.at) if target.own else "",
        about=_("job {job}").format(job=target.name) if target.own else _("step {step}").format(step=target.name),
    )
    main.set(job="+".join(report.jobs), step=report.step, receipt=said)
    main.finish(outcome, words)
    if outcome != "clean" or not line.has("quiet"):
        receipt.say(said)
    receipt.say_to_send([row for word in words for row in word.stuck], "+".join(report.jobs))
    if done.answer.word == GONE:
        # For the next time, and once a day: the controller has just answered squeue.
        siteinfo.ask(timeout=1)


def finish_unreported(plan: keeper.Plan, main: record.Main, link: keeper.Link, status: int) -> None:
    """Nobody has said which job it was: usually no step was launched, since srun refused the command line, or the wait in the
    queue was given up. An srun that was killed may leave an allocation behind."""
    from handwash.schedulers.slurm_step import GONE, Target
    from handwash.srun import keeper

    launched_nothing = bool(link.pipe.path)
    if launched_nothing and os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        main.finish("clean", [])
        return
    done = keeper.give_back(plan, main) if launched_nothing and os.WIFSIGNALED(status) else None
    main.finish("clean" if done is not None and done.answer.word == GONE else "unconfirmed", [])
    job = main.fields.get("job", "")
    if done is None:
        receipt.say(_("could not tell which job this was, so nothing is confirmed; see `squeue --me`"))
    elif job:
        said = receipt.queue(Target((job,), "0", True, plan.cluster), done)
        receipt.say(
            receipt.line(_("srun ended before it had started anything"), said, about=_("job {job}").format(job=job))
        )


def report_of_parts(words: Sequence[record.PartWord]) -> keeper.Report | None:
    """Job and step from the nodes, where the prolog could not report."""
    from handwash.srun import keeper

    for word in words:
        if word.job.isdigit():
            return keeper.Report((word.job,), word.step, 0, world.now())
    return None
