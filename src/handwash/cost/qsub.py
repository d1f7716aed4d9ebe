"""qsub: the job that a command line makes under PBS. Pure."""

from __future__ import annotations

import re

from handwash.cost import jobs, pbs_count, pbs_request, pbs_script
from handwash.cost.amounts import Unreadable
from handwash.cost.pbs_options import parse, split
from handwash.cost.shellcode import DYNAMIC
from handwash.cost.verdict import NO, UNKNOWN, YES, Cost, of_parts
from handwash.frozen import replace
from handwash.messages import _
from handwash.model import Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from handwash.cost.sources import Sources


def of(words: Sequence[str], env: Mapping[str, str], sources: Sources, *, moved: bool) -> jobs.Found:
    """The verdict on qsub with these words. Raises `Unreadable`. `moved`: in another folder than this one."""
    if list(words) == ["--version"]:
        return jobs.Found(Cost(NO, (_("{program} prints its help and makes no job.").format(program="qsub"),)))
    line = parse(words)
    if any(
        DYNAMIC in word for word in (*(value for _letter, value in line.options), line.script or "", *line.command[:1])
    ):
        raise Unreadable(_("An option is in a variable."))
    passes = [line.options]
    text = ""
    why: list[str] = []
    if line.script not in (None, "-"):
        name = str(line.script)
        read = (
            Unknown(_("The folder in which {path} is looked for is not this one.").format(path=name))
            if moved and not name.startswith("/")
            else sources.text(name)
        )
        if isinstance(read, Unknown):
            return jobs.Found(Cost(UNKNOWN, unknown=(read.why,)))
        text = read
        prefix = next((value for letter, value in reversed(line.options) if letter == "C"), None)
        prefix = env.get("PBS_DPREFIX", pbs_script.PREFIX) if prefix is None else prefix
        if DYNAMIC in prefix:
            raise Unreadable(_("An option is in a variable."))
        found = pbs_script.directives(text, prefix)
        passes.append(found.options)
        if found.late:
            sentence = _("Line {number} of {path} stands behind the first command: qsub ignores it.")
            why.append(sentence.format(number=found.late, path=name))
        elif not found.options:
            why.append(_("There is no #PBS line in {path}.").format(path=name))
    elif not line.command and not pbs_request.request(passes).interactive:
        sentence = _("qsub reads the script from standard input, which is not read here.")
        return jobs.Found(Cost(UNKNOWN, unknown=(sentence,)))
    site = sources.pbs()
    if isinstance(site, Unknown) and re.search(r"^#SBATCH", text, re.MULTILINE):
        # Slurm's own qsub passes the script on to sbatch.
        sentence = _("Under Slurm the #SBATCH lines in it count too; handwash cost -- sbatch reads them.")
        return jobs.Found(Cost(UNKNOWN, unknown=(site.why, sentence)))
    if not isinstance(site, Unknown) and site.arguments:
        sentence = _("What the server has qsub add cannot be read here: {value}")
        passes.append(parse(split(site.arguments, sentence.format(value=site.arguments))).options)
    asked = pbs_request.request(passes)
    part, reasons, unknown = pbs_count.part(asked, site)
    why += reasons
    if asked.array:
        part = replace(part, copies=asked.array[0])
        why.append(jobs.array_sentence(*asked.array))
    cost = of_parts((part,), why, unknown, "exit" if asked.interactive else "qdel")
    if cost.verdict == YES:
        cost = replace(cost, why=(*cost.why, *jobs.billed()))
        if asked.held:
            cost = replace(cost, why=(*cost.why, _("-h holds it back: it does not start before it is released.")))
    if not isinstance(site, Unknown):
        hooks = _("The site's hooks may change a request, and cannot be seen from here.")
        cost = replace(cost, why=(*cost.why, hooks))
    if text and not asked.interactive:
        # An interactive job reads the options of its script and runs nothing of it.
        cost = jobs.with_the_scripts_own(cost, text, "", sources, moved, steps=False)
    return jobs.Found(cost, (line.command,) if line.command else ())
