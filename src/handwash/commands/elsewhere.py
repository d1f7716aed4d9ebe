"""`handwash clean --all-nodes`: the same look and the same end on the other nodes of this job, each by a step beside it."""

from __future__ import annotations

import os
import sys

from handwash import messages, paths, remarks, render, run, schedulers, slurm_names, tell_clean
from handwash.config import Config
from handwash.exits import Exit
from handwash.frozen import frozen
from handwash.messages import _, ngettext
from handwash.model import Job, Survey, Unknown
from handwash.render import harmless
from handwash.schedulers import slurm_nodes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TextIO, Union

# For srun to get its step started, beside what handwash itself takes there.
_START_S = 10.0
# Of 30 characters at most each, in a word of 128 KiB.
_PAIRS = 2000
# What every answer of `clean --json` has, and what the rows of these lists have to hold to be shown.
_LISTS = ("ended", "killed", "left", "memory", "held_back", "unknown")
_ROWS: dict[str, dict[str, type]] = {
    "left": {"pid": int, "why": str},
    "held_back": {"pid": int, "why": str},
    "would_end": {"pid": int, "start_ticks": int, "command": str, "why": str},
}


@frozen
class Remote:
    """One process on another node, as its handwash tells it."""

    node: str
    pid: int
    start_ticks: int
    command: str
    why: str


@frozen
class Answer:
    """What the handwash of one node has said: its exit code (0, 1 or 3), and the object."""

    code: int
    told: Mapping[str, Any]

    @property
    def held(self) -> tuple[tuple[int, str], ...]:
        """What it holds back, as pid and reason."""
        return tuple((item["pid"], item["why"]) for item in self.told["held_back"])

    @property
    def unsure(self) -> tuple[str, ...]:
        """What it could not tell, a sentence for each. Its exit code says that there is such a thing, whatever it names."""
        said = [str(sentence) for sentence in self.told["unknown"]]
        if self.code == Exit.UNKNOWN and not said:
            said = [str(self.told.get("why") or _("Could not tell whether anything is left over."))]
        return tuple(said)

    def without(self, jobs: tuple[str, ...], steps: tuple[str, ...]) -> Answer:
        """The same answer without what belongs to these steps of these jobs."""
        rows = self.told.get("would_end", [])
        rest = [row for row in rows if row.get("job") not in jobs or row.get("step") not in steps]
        if len(rest) == len(rows):
            return self
        stays = rest or self.told["held_back"] or self.told.get("why")
        code = self.code if stays else Exit.UNKNOWN if self.told["unknown"] else Exit.CLEAN
        return Answer(code, {**self.told, "would_end": rest})

    @property
    def refused(self) -> str | None:
        """Why it would not end anything at all, though it could tell."""
        return str(self.told["why"]) if self.code == Exit.FOUND and self.told.get("why") else None


class Elsewhere:
    """The other nodes of a job. `steps`: the job's living steps. `targets`: what is left over on those nodes.

    `found`, `ended`: what each node said at the first look, and when that was ended. `silent`: the nodes that gave no answer
    to one of the two, with the reason; `why`: why it could not be told which nodes or steps there are.
    """

    def __init__(self, job: str, steps: tuple[str, ...] | None) -> None:
        self.job = job
        self.steps = steps
        self.why: str | None = None
        self.found: dict[str, Answer] = {}
        self.ended: dict[str, Answer] = {}
        self.silent: dict[str, str] = {}
        self._parts: dict[str, Job] = {}
        self._said: set[str] = set()

    @property
    def targets(self) -> tuple[Remote, ...]:
        return tuple(
            Remote(node, item["pid"], item["start_ticks"], item["command"], item["why"])
            for node, answer in self.found.items()
            for item in answer.told.get("would_end", ())
        )

    @property
    def stays(self) -> bool:
        """Whether something stays there: held back, not ended, or memory that is known not to be back."""
        return any(self._stays(node, answer) for node, answer in self.found.items())

    def _stays(self, node: str, answer: Answer) -> bool:
        if node in self.ended:
            return self.ended[node].code == Exit.FOUND or any(why == "mps" for _pid, why in answer.held)
        return answer.code == Exit.FOUND and (bool(answer.held) or not answer.told.get("would_end"))

    @property
    def unsure(self) -> bool:
        """Whether something could not be told: a node that is silent, or what a node said itself."""
        answers = (*self.found.values(), *self.ended.values())
        return self.why is not None or bool(self.silent) or any(answer.unsure for answer in answers)

    def look(self, parts: Mapping[str, Job], words: list[str], seconds: float) -> None:
        """What is left over on these nodes, each with the queue's row that it belongs to."""
        self._parts.update(parts)
        self._ask({node: ["--dry-run", *words] for node in parts}, seconds, self.found)

    def spare(self, jobs: tuple[str, ...], steps: tuple[str, ...]) -> None:
        """Takes out what belongs to these steps of these jobs: they live."""
        self.steps = tuple(dict.fromkeys((*(self.steps or ()), *steps)))
        self.found = {node: answer.without(jobs, steps) for node, answer in self.found.items()}

    def end(self, settings: Config) -> None:
        """Ends exactly what was shown, by pid and start time."""
        words: dict[str, list[str]] = {}
        for one in self.targets:
            words.setdefault(one.node, []).append(f"{one.pid}:{one.start_ticks}")
        if words:
            self._ask(
                {node: ["--yes", *_exactly(pairs)] for node, pairs in words.items()},
                _START_S + settings.deadline * 3 + settings.grace * 2 + 5.0,
                self.ended,
            )

    def break_off(self) -> None:
        """The person has interrupted it: what has become of the targets is not known where no answer has come."""
        for one in self.targets:
            if one.node not in self.ended:
                self.silent[one.node] = _("interrupted")

    def _ask(self, nodes: dict[str, list[str]], seconds: float, answers: dict[str, Answer]) -> None:
        """Runs `handwash clean` with these words on each of the nodes, side by side."""
        main = os.path.join(paths.PACKAGE, "__main__.py")
        steps = [] if self.steps is None else [f"--steps={','.join(self.steps)}"]
        # What it says is shown here: in this language, though the programs whose words are read speak English.
        speaks = {"HANDWASH_LANG": messages.language()}

        def question(node: str, words: list[str]) -> Any:
            command = [sys.executable, "-I", "-S", main, "clean", "--json", *steps, *words]
            argv = slurm_nodes.beside_argv(self._parts[node], node, command)
            result = run.run(argv, seconds, slurm_nodes.outside_environment(run.clean_environment(speaks)))
            return result.code, result.out, result.err, result.timed_out

        looks = {node: (lambda node=node, words=words: question(node, words)) for node, words in nodes.items()}
        for node, answer in run.looks(looks, seconds + 1.0).items():
            read = read_answer(answer)
            if isinstance(read, str):
                self.silent[node] = read
            else:
                answers[node] = read

    def show_targets(self, stream: TextIO) -> None:
        """What is left over on the other nodes, a line each, and what is not to be ended or could not be told there."""
        for one in self.targets:
            sentence = _("On {node}: {pid} {command}. {why}")
            self._say(
                stream, sentence, node=one.node, pid=one.pid, command=harmless(one.command, 48), why=harmless(one.why)
            )
        self._show_rest(stream)

    def show_results(self, stream: TextIO) -> None:
        """What became of it there, and what has not been said before of the rest."""
        for node, answer in self.ended.items():
            count = len(answer.told["ended"])
            if count:
                sentence = ngettext("On {node}: {count} process ended.", "On {node}: {count} processes ended.", count)
                self._say(stream, sentence, node=node, count=count)
            for item in answer.told["left"]:
                sentence = _("On {node}: still there: {pid} ({why}).")
                self._say(stream, sentence, node=node, pid=item["pid"], why=harmless(tell_clean.why_left(item["why"])))
            if answer.told.get("returned") is False:
                self._say(stream, _("On {node}: not all GPU memory came back."), node=node)
        self._show_rest(stream)
        nothing = [node for node, answer in self.found.items() if answer.code == Exit.CLEAN]
        if nothing:
            self.say_clean(tuple(nothing), stream)

    def say_clean(self, nodes: tuple[str, ...], stream: TextIO) -> None:
        """That nothing was found on these nodes."""
        self._say(stream, _("On {nodes}: nothing of yours is left over."), nodes=", ".join(nodes))

    def _show_rest(self, stream: TextIO) -> None:
        for node, answer in self.found.items():
            for pid, why in answer.held:
                sentence = _("On {node}: {pid} is held back ({why}). To end it, there: handwash clean {pid}")
                self._say(stream, sentence, node=node, pid=pid, why=harmless(tell_clean.why_left(why)))
            if answer.refused:
                self._say(stream, _("On {node}: {said}"), node=node, said=harmless(answer.refused, 500))
        for answers in (self.found, self.ended):
            for node, answer in answers.items():
                for said in answer.unsure:
                    self._say(stream, _("On {node}: {said}"), node=node, said=harmless(said, 500))
        for node, why in self.silent.items():
            self._say(stream, _("{node} could not be looked at: {why}"), node=node, why=harmless(why, 500))
        if self.why is not None:
            sentence = _("The other nodes of this job could not be looked at as they should: {why}")
            self._say(stream, sentence, why=harmless(self.why, 500))

    def _say(self, stream: TextIO, sentence: str, **named: Any) -> None:
        """Each line once: what was said before the question is not said again after it."""
        for name in ("node", "nodes"):
            if name in named:
                named[name] = harmless(named[name])
        line = sentence.format(**named)
        if line not in self._said:
            self._said.add(line)
            render.say(line, stream)

    def json(self) -> list[dict[str, Any]]:
        """For each node what its handwash has answered, or why it has not."""
        rows = []
        for node in sorted({*self.found, *self.silent}):
            first, last = self.found.get(node), self.ended.get(node)
            row: dict[str, Any] = {"node": node, "known": node not in self.silent, "why": self.silent.get(node)}
            if first is not None:
                told = {**first.told, **(last.told if last is not None else {})}
                kept = ("ended", "killed", "left", "memory", "returned")
                row.update({key: told[key] for key in kept if key in told})
                row["would_end"] = list(first.told.get("would_end", ()))
                row["held_back"] = list(first.told["held_back"])
                row["unknown"] = [*first.unsure, *(last.unsure if last is not None else ())]
                row["why"] = row["why"] or first.refused
            rows.append(row)
        return rows


def read_answer(answer: Any) -> Union[Answer, str]:
    """What came back of one node, or why that is no answer: exit code, output, error output, whether it was too late."""
    import json

    if isinstance(answer, Unknown):
        return answer.why
    code, out, err, timed_out = answer
    if timed_out:
        return _("no answer in time")
    if code in (Exit.CLEAN, Exit.FOUND, Exit.UNKNOWN):
        try:
            told = json.loads(out)
        except (ValueError, RecursionError):
            told = None
        if _is_whole(told):
            return Answer(code, told)
    words = err.decode("utf-8", "replace").strip().splitlines()
    return words[-1] if words else _("srun ended with exit code {code}").format(code=code)


def _is_whole(told: Any) -> bool:
    if not isinstance(told, dict) or told.get("schema") != 1:
        return False
    if not all(isinstance(told.get(name), list) for name in _LISTS):
        return False
    if not all(isinstance(told.get(name, []), list) for name in _ROWS):
        return False
    rows = [(row, needs) for name, needs in _ROWS.items() for row in told.get(name, [])]
    # Not isinstance(): true and false are numbers there.
    return all(
        isinstance(row, dict) and all(type(row.get(key)) is kind for key, kind in needs.items()) for row, needs in rows
    )


def _exactly(pairs: list[str]) -> list[str]:
    """As many words as it takes: the kernel has a limit for each (execve(2), MAX_ARG_STRLEN)."""
    return [f"--exactly={','.join(pairs[place : place + _PAIRS])}" for place in range(0, len(pairs), _PAIRS)]


def living_steps(job: str, seconds: float) -> tuple[str, ...]:
    """The steps of a job that still run. Raises CouldNotTell."""
    return _steps((job,), seconds)


def _steps(jobs: tuple[str, ...], seconds: float) -> tuple[str, ...]:
    try:
        return slurm_nodes.parse_steps(run.run(slurm_nodes.steps_argv(jobs), seconds), jobs[0])
    except OSError as error:
        raise run.CouldNotTell(f"{slurm_names.name('squeue')}: {error.strerror}") from None


def ask(seen: Survey, settings: Config, session: str | None) -> Elsewhere:
    """What is left over on the other nodes of this shell's job, or what is left there of one session.

    The steps are listed after the processes were looked at, those of `seen` and then those of the nodes: what has begun
    before they looked, and after the first list, is on the second.
    """
    if isinstance(seen.node, Unknown):
        found = Elsewhere("", None)
        found.why = seen.node.why
        return found
    if seen.node.job is None:
        return Elsewhere("", None)
    found = Elsewhere(seen.node.job, None)
    if isinstance(seen.jobs, Unknown):
        found.why = seen.jobs.why
        return found
    if not schedulers.here().reaches_nodes:
        if seen.node.job not in {job.number for job in seen.jobs}:
            sentence = _("job {job} is not on the list of your jobs, so its nodes are not known")
            found.why = sentence.format(job=seen.node.job)
        elif remarks.other_nodes(seen):
            sentence = _("handwash cannot be started there by itself; log in there and type: handwash clean ({nodes})")
            found.why = sentence.format(nodes=", ".join(remarks.other_nodes(seen)))
        return found
    parts = {node: job for job in remarks.components(seen) for node in job.nodes}
    parts = {node: parts[node] for node in remarks.other_nodes(seen)}
    # Of a heterogeneous job each component has its own row, and steps of all of them count as living.
    numbers = tuple(job.number for job in remarks.components(seen)) or (seen.node.job,)
    try:
        found.steps = _steps(numbers, settings.deadline)
        if parts:
            words = [] if session is None else [f"--session={session}"]
            found.look(parts, words, _START_S + settings.deadline * 2)
            found.spare(numbers, _steps(numbers, settings.deadline))
    except run.CouldNotTell as reason:
        found.found = {}
        found.silent = dict.fromkeys(parts, str(reason))
        found.why = None if parts else str(reason)
    return found
