"""`handwash clean --all-nodes`: the same look and the same end on the other nodes of this job, each by a step beside it."""

from __future__ import annotations

import os
import sys

from handwash import paths, remarks, render, run, tell_clean
from handwash.config import Config
from handwash.frozen import frozen
from handwash.messages import _, ngettext
from handwash.model import Survey, Unknown
from handwash.render import harmless
from handwash.schedulers import slurm_nodes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO, Union

# For srun to get its step started, beside what handwash itself takes there.
_START_S = 10.0


@frozen
class Remote:
    """One process on another node, as its handwash tells it."""

    node: str
    pid: int
    start_ticks: int
    command: str
    why: str


class Elsewhere:
    """The other nodes of a job. `steps`: the job's living steps. `targets`: what is left over on those nodes.

    `silent`: the nodes that gave no answer, with the reason; `left`: what was not ended there.
    """

    def __init__(self, job: str, steps: tuple[str, ...] | None) -> None:
        self.job = job
        self.steps = steps
        self.answers: dict[str, dict[str, Any]] = {}
        self.silent: dict[str, str] = {}

    @property
    def targets(self) -> tuple[Remote, ...]:
        return tuple(
            Remote(node, item["pid"], item["start_ticks"], item["command"], item["why"])
            for node, answer in self.answers.items()
            for item in answer.get("would_end", ())
        )

    @property
    def left(self) -> list[Any]:
        return [item for answer in self.answers.values() for item in answer["left"]]

    def ask(self, nodes: dict[str, list[str]], seconds: float) -> None:
        """Runs `handwash clean` with these words on each of the nodes, side by side."""
        main = os.path.join(paths.PACKAGE, "__main__.py")
        steps = [] if self.steps is None else [f"--steps={','.join(self.steps)}"]

        def question(node: str, words: list[str]) -> Any:
            command = [sys.executable, "-I", "-S", main, "clean", "--json", *steps, *words]
            argv = slurm_nodes.beside_argv(self.job, node, command)
            env = slurm_nodes.outside_environment(run.clean_environment())
            result = run.run(argv, seconds, env)
            return result.code, result.out, result.err, result.timed_out

        looks = {node: (lambda node=node, words=words: question(node, words)) for node, words in nodes.items()}
        for node, answer in run.looks(looks, seconds + 1.0).items():
            found = _read(answer)
            if isinstance(found, str):
                self.silent[node] = found
            else:
                self.answers[node] = found

    def end(self, settings: Config) -> None:
        """Ends exactly what was shown, by pid and start time."""
        words: dict[str, list[str]] = {}
        for one in self.targets:
            words.setdefault(one.node, []).append(f"{one.pid}:{one.start_ticks}")
        if words:
            self.ask(
                {node: ["--yes", f"--exactly={','.join(pairs)}"] for node, pairs in words.items()},
                _START_S + settings.deadline * 3 + settings.grace * 2 + 5.0,
            )

    def show_targets(self, stream: TextIO) -> None:
        """What is left over on the other nodes, a line each."""
        for one in self.targets:
            sentence = _("On {node}: {pid} {command}. {why}")
            render.say(
                sentence.format(
                    node=harmless(one.node), pid=one.pid, command=harmless(one.command, 48), why=harmless(one.why)
                ),
                stream,
            )
        self._show_silent(stream)

    def show_results(self, stream: TextIO) -> None:
        """What became of it there."""
        for node, answer in self.answers.items():
            count = len(answer["ended"])
            if count:
                sentence = ngettext("On {node}: {count} process ended.", "On {node}: {count} processes ended.", count)
                render.say(sentence.format(node=harmless(node), count=count), stream)
            for item in answer["left"]:
                sentence = _("On {node}: still there: {pid} ({why}).")
                why = tell_clean.why_left(str(item["why"]))
                render.say(sentence.format(node=harmless(node), pid=item["pid"], why=harmless(why)), stream)
        self._show_silent(stream)

    def _show_silent(self, stream: TextIO) -> None:
        for node, why in self.silent.items():
            render.say(_("{node} could not be looked at: {why}").format(node=harmless(node), why=harmless(why)), stream)

    def json(self) -> list[dict[str, Any]]:
        """For each node what its handwash has answered, or why it has not."""
        kept = ("ended", "killed", "left", "memory", "returned", "would_end")
        answered: list[dict[str, Any]] = [
            {"node": node, "known": True, "why": None, **{key: answer[key] for key in kept if key in answer}}
            for node, answer in self.answers.items()
        ]
        return answered + [{"node": node, "known": False, "why": why} for node, why in self.silent.items()]


def _read(answer: Any) -> Union[dict[str, Any], str]:
    import json

    if isinstance(answer, Unknown):
        return answer.why
    code, out, err, timed_out = answer
    if timed_out:
        return _("no answer in time")
    try:
        found = json.loads(out)
        if found["schema"] == 1 and isinstance(found["ended"], list):
            return dict(found)
    except (ValueError, KeyError, TypeError):
        pass
    words = err.decode("utf-8", "replace").strip().splitlines()
    return words[-1] if words else _("srun ended with exit code {code}").format(code=code)


def living_steps(job: str, seconds: float) -> tuple[str, ...]:
    """The steps of a job that still run. Raises CouldNotTell."""
    try:
        return slurm_nodes.parse_steps(run.run(slurm_nodes.steps_argv(job), seconds), job)
    except OSError as error:
        raise run.CouldNotTell(f"squeue: {error.strerror}") from None


def ask(seen: Survey, settings: Config) -> Elsewhere:
    """What is left over on the other nodes of this shell's job."""
    job = None if isinstance(seen.node, Unknown) else seen.node.job
    found = Elsewhere(job or "", None)
    nodes = remarks.other_nodes(seen)
    if job is None:
        return found
    try:
        found.steps = living_steps(job, settings.deadline)
    except run.CouldNotTell as reason:
        found.silent = dict.fromkeys(nodes, str(reason))
        return found
    if nodes:
        found.ask({node: ["--dry-run"] for node in nodes}, _START_S + settings.deadline * 2)
    return found
