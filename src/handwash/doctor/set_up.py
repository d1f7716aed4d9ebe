"""From evidence to findings: how handwash and the site are set up for this person. Pure."""

from __future__ import annotations

from handwash import schedulers
from handwash.doctor.evidence import Evidence, Finding, SetUp
from handwash.messages import _
from handwash.model import Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PROBLEM, NOTICE = "problem", "notice"
# Slurm's credentials are good for minutes (munge: 300 s); times in the queue go wrong before that.
_SKEW_NOTICE_S, _SKEW_PROBLEM_S = 5.0, 60.0


def findings(evidence: Evidence) -> Iterator[Finding]:
    """The hook, `exit`, the interpreter, the state folder, clocks, and what leaving does to what still runs."""
    seen = evidence.set_up
    if not isinstance(seen, Unknown):
        yield from _hook(seen)
        if seen.exit_lines:
            what = _("You have an exit of your own: handwash leaves it alone, and checks only after it.")
            remedy = _("Take that line out, or type `handwash check` before you leave.")
            yield Finding("exit-aliased", NOTICE, what, "; ".join(seen.exit_lines), remedy)
        if seen.interpreter_why is not None:
            what = _("The Python that the hook calls does not work, so banner and check are silent.")
            said = f"{seen.interpreter}: {seen.interpreter_why}"
            yield Finding(
                "interpreter-unusable", PROBLEM, what, said, _("Install handwash anew, then: handwash install")
            )
        if seen.state_why is not None:
            what = _(
                "The state folder cannot be written: no session is recorded, and nothing is named at the next login."
            )
            said = f"{seen.state_dir}: {seen.state_why}"
            yield Finding("state-not-writable", PROBLEM, what, said, f"df -h {seen.state_dir}; ls -ld {seen.state_dir}")
        yield from _skew(seen.file_skew, _("file server"), "date; touch ~/.x; stat -c %y ~/.x; rm ~/.x")
    yield from _skew(evidence.controller_skew, _("controller"), schedulers.here().clock_line() or "date")
    yield from _leaving(evidence)


def _hook(seen: SetUp) -> Iterator[Finding]:
    if seen.disabled is not None:
        what = _("handwash is switched off: no banner, no check at exit.")
        said = _("{where} says so.").format(where=seen.disabled)
        remedy = "unset HANDWASH_DISABLE" if seen.disabled == "HANDWASH_DISABLE" else "handwash.toml: disable = false"
        yield Finding("hook-inactive", NOTICE, what, said, remedy)
    elif not seen.blocks:
        what = _("The hook is not installed for this shell: no banner at login, no check at exit.")
        said = _("No start-up file of {shell} has it.").format(shell=seen.shell or "-")
        yield Finding("hook-inactive", NOTICE, what, said, "handwash install")
    elif seen.terminal and not seen.shown and not seen.banner_off:
        what = _("The hook is installed, but not active in this shell.")
        said = _("{files} has it, and this shell has shown no banner.").format(files=", ".join(seen.blocks))
        yield Finding("hook-inactive", PROBLEM, what, said, f"exec {seen.shell or '$SHELL'}")


def _skew(seconds: float | None, whose: str, remedy: str) -> Iterator[Finding]:
    if seconds is None or abs(seconds) < _SKEW_NOTICE_S:
        return
    severity = PROBLEM if abs(seconds) >= _SKEW_PROBLEM_S else NOTICE
    what = _("This node's clock and that of the {whose} differ: times in the queue and of files are wrong here.")
    said = _("The {whose} is {seconds} s ahead.").format(whose=whose, seconds=f"{seconds:.0f}")
    yield Finding("clock-skew", severity, what.format(whose=whose), said, remedy)


def _leaving(evidence: Evidence) -> Iterator[Finding]:
    """What leaving does at this site."""
    node = evidence.survey.node
    found = schedulers.here().leaving(evidence.survey.site, None if isinstance(node, Unknown) else node)
    if found is not None:
        yield Finding("proctrack", NOTICE, found.what, found.evidence, found.remedy)
