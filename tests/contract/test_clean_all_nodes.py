"""`clean --all-nodes` with a scripted srun: what another node held back, left or could not tell is never nothing."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contract.test_front_door import FIELDS, World
from tests.contract.test_sessions import SESSION, record
from tests.unit.test_judge import survey

from handwash import cli
from handwash.commands import elsewhere
from handwash.commands.elsewhere import Answer, read_answer
from handwash.config import Config
from handwash.model import Unknown

# No other test's processes have this one.
NUMBER = str(70_000_000 + os.getpid())
NOTHING: dict[str, Any] = {
    "schema": 1, "ended": [], "killed": [], "left": [], "memory": [], "returned": None, "held_back": [], "unknown": [],
}  # fmt: skip
SILENT_GPU = "Could not tell who is on the GPUs: No answer within 3 s."
LEFT = {"would_end": [{"pid": 77, "start_ticks": 5, "command": "train.py", "why": "Its job 9 is over."}]}
MPS = {"held_back": [{"pid": 78, "why": "mps"}]}


class Job(World):
    """A shell that salloc gave, its job on n2 (and n3); srun runs what each node's script says.

    `clean --yes` is meant here, so it is about one session alone, which is on record and has left nothing here: what else
    is left over on this machine is that of whoever runs the tests.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.env["SLURM_JOB_ID"] = NUMBER
        self.record = record(self)
        (folder / "nodes").mkdir()
        self.nodes("n2")
        self.steps(f"echo STEPID {NUMBER}.0")
        # Its own words go to a file; the node's script gets handwash's.
        self.script(
            "srun",
            'echo "$*" >>"$HOME/asked"\n'
            'for word; do case "$word" in --nodelist=*) node="${word#*=}" ;; esac; done\n'
            f'exec /bin/sh {folder}/nodes/"$node" "$@"\n',
        )

    def nodes(self, *names: str) -> None:
        row = FIELDS.replace("123", NUMBER, 1).replace("n1", ",".join(names), 1)
        (self.folder / "answer").write_text(f"{row}bash\x1e\n")

    def steps(self, script: str) -> None:
        self.script("squeue", f'case "$*" in *--steps*) {script} ;; *) exec /bin/cat {self.folder}/answer ;; esac')

    def node(self, name: str, code: int, told: dict[str, Any], end: tuple[int, dict[str, Any]] | None = None) -> None:
        """What the node's handwash answers to the look, and to the end."""
        for word, (status, more) in {"--dry-run": (code, told), "--exactly": end or (70, {})}.items():
            (self.folder / f"{name}{word}").write_text(json.dumps({**NOTHING, **more}))
            (self.folder / f"{name}{word}.code").write_text(str(status))
        self.says(
            name,
            'case "$*" in *--exactly=*) word=--exactly ;; *) word=--dry-run ;; esac\n'
            f'/bin/cat {self.folder}/{name}$word; read -r code <{self.folder}/{name}$word.code; exit "$code"',
        )

    def says(self, name: str, script: str) -> None:
        (self.folder / "nodes" / name).write_text(script)

    def asked(self) -> list[str]:
        return (self.home / "asked").read_text().splitlines()

    def clean(self, *words: str) -> tuple[int, str, list[dict[str, Any]]]:
        """Exit code, what is said, and the nodes of the object; both ways give the same code."""
        words = ("clean", "--all-nodes", "--session", SESSION, *words)
        code, out, err = self.run(*words)
        assert "Traceback" not in err and "\x1b" not in out
        again, answer = self.json(*words)
        assert again == code, (out, answer)
        return code, out, answer["nodes"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Job]:
    return Job(tmp_path)


@pytest.mark.parametrize("words", [["--yes"], ["--dry-run"]], ids=" ".join)
@pytest.mark.parametrize(
    ("code", "told", "wanted", "said"),
    [
        (0, {}, 0, "On n2: nothing of yours is left over."),
        (1, MPS, 1, "On n2: 78 is held back (it shares its GPU through the multi-process service)"),
        (3, {"unknown": [SILENT_GPU]}, 3, f"On n2: {SILENT_GPU}"),
        (3, {"why": "No answer within 3 s."}, 3, "On n2: No answer within 3 s."),
        (3, {}, 3, "On n2: Could not tell"),
        (1, {"why": "There is no session."}, 1, "On n2: There is no session."),
        (3, {**MPS, "unknown": [SILENT_GPU]}, 3, "On n2: 78 is held back"),
    ],
    ids=["nothing", "held back", "GPUs silent", "no look at all", "no reason", "refused", "held back and silent"],
)
def test_what_one_node_says_counts(
    world: Job, words: list[str], code: int, told: dict[str, Any], wanted: int, said: str
) -> None:
    """Named by node, in the object, in the exit code; the session's record is closed only where nothing of it may be left."""
    world.node("n2", code, told)
    found, out, (node,) = world.clean(*words)
    assert (found, node["node"], node["known"]) == (wanted, "n2", True), out
    assert said in out
    assert world.record.exists() == (wanted != 0 or words == ["--dry-run"])
    assert node["held_back"] == told.get("held_back", [])
    assert bool(node["unknown"]) == (code == 3)
    # Else what other work has left there would be ended, which nobody has asked for.
    assert f"--session={SESSION}" in world.asked()[0]
    assert "--dry-run" in world.asked()[0] and f"--jobid={NUMBER}" in world.asked()[0]


def test_a_node_that_fails_or_is_silent_beside_one_that_answers(world: Job) -> None:
    """srun's last words, or that there was no answer in time; the other node's answer stands."""
    world.nodes("n2", "n3")
    world.node("n3", 0, {})
    for script, why in (
        ("echo 'srun: error: no\x1b[31mde' >&2; exit 1", "srun: error: no"),
        ("exit 7", "srun ended with exit code 7"),
        ("echo nonsense", "srun ended with exit code 0"),
        ("echo '{\"schema\": 1}'", "srun ended with exit code 0"),
        (f"echo '{json.dumps({**NOTHING, 'would_end': None})}'", "srun ended with exit code 0"),
        (f"echo '{json.dumps({**NOTHING, 'would_end': 5})}'", "srun ended with exit code 0"),
        (f"echo '{json.dumps({**NOTHING, 'held_back': [{**MPS['held_back'][0], 'pid': True}]})}'", "srun ended"),
        ("kill -9 $$", "srun ended with exit code -9"),
    ):
        world.says("n2", script)
        for words in (["--yes"], ["--dry-run"]):
            code, out, (silent, other) = world.clean(*words)
            assert code == 3 and f"n2 could not be looked at: {why}" in out, (script, out)
            assert (silent["node"], silent["known"]) == ("n2", False) and why in silent["why"]
            assert other["known"] and "On n3: nothing of yours is left over." in out


def test_a_node_that_hangs(world: Job) -> None:
    world.says("n2", "exec /bin/sleep 60")
    begun = time.monotonic()
    words = ("clean", "--all-nodes", "--session", SESSION, "--yes")
    code, answer = world.json(*words, env={"HANDWASH_DEADLINE": "0.5"})
    assert code == 3 and answer["nodes"] == [{"node": "n2", "known": False, "why": "no answer in time"}]
    assert time.monotonic() - begun < 25


@pytest.mark.parametrize("steps", ["exit 1", "exit 0", "echo 1.0", "echo STEPID nonsense", "exec /bin/sleep 60"])
def test_the_living_steps_could_not_be_told(world: Job, steps: str) -> None:
    """Without them nothing could be told from another's step that lives: no node is asked, and each is named."""
    world.steps(steps)
    world.nodes("n2", "n3")
    code, out, nodes = world.clean("--yes")
    assert code == 3 and "n2 could not be looked at" in out and "n3 could not be looked at" in out
    assert [row["known"] for row in nodes] == [False, False] and not (world.home / "asked").exists()
    world.nodes()
    code, out, nodes = world.clean("--yes")
    assert code == 3 and nodes == [] and "could not be looked at" in out


def test_which_nodes_there_are_could_not_be_told(world: Job) -> None:
    world.script("squeue", "exit 1")
    code, out, nodes = world.clean("--yes")
    assert code == 3 and nodes == [] and "The other nodes of this job could not be looked at" in out


@pytest.mark.parametrize(
    ("code", "told", "wanted", "said"),
    [
        (0, {"ended": [77], "returned": True}, 0, "On n2: 1 process ended."),
        (1, {"ended": [], "left": [{"pid": 77, "why": "alive"}]}, 1, "On n2: still there: 77 (it did not end)."),
        (1, {"ended": [77], "returned": False}, 1, "On n2: not all GPU memory came back."),
        (3, {"ended": [77], "returned": None}, 3, "On n2: Could not tell"),
        (3, {"ended": [77], "unknown": [SILENT_GPU]}, 3, f"On n2: {SILENT_GPU}"),
        (70, {}, 3, "n2 could not be looked at: srun ended with exit code 70"),
    ],
    ids=["ended", "left", "memory missing", "memory unknown", "unknown", "fault"],
)
def test_what_became_of_it_there(world: Job, code: int, told: dict[str, Any], wanted: int, said: str) -> None:
    """After the end the second answer counts; exactly what was shown is asked to be ended, by pid and start time."""
    world.node("n2", 1, LEFT, (code, told))
    found, out, (node,) = world.clean("--yes")
    assert found == wanted and "On n2: 77 train.py. Its job 9 is over." in out and said in out, out
    assert node["known"] == (code != 70) and [one["pid"] for one in node["would_end"]] == [77]
    assert "--exactly=77:5" in world.asked()[1] and "--yes" in world.asked()[1]
    assert world.clean("--dry-run")[0] == 1


def test_what_was_held_back_still_counts_after_the_end(world: Job) -> None:
    """All that was to be ended has ended; the client of the multi-process service is still there."""
    world.node("n2", 1, {**LEFT, **MPS, "unknown": [SILENT_GPU]}, (0, {"ended": [77], "returned": True}))
    code, out, (node,) = world.clean("--yes")
    assert code == 1 and out.count("78 is held back") == 1 and SILENT_GPU in out
    assert node["held_back"] == MPS["held_back"] and node["unknown"] == [SILENT_GPU] and node["ended"] == [77]


def test_a_step_that_has_begun_while_the_nodes_looked(world: Job) -> None:
    """On the list that was made before, it is on none; by the one that is made after, it lives, and nobody is to end it."""
    count = f"{world.folder}/count"
    world.steps(
        f'echo x >>{count}; echo STEPID; echo {NUMBER}.0; case "$(/bin/cat {count})" in x) ;; *) echo {NUMBER}.7 ;; esac'
    )
    row = {"start_ticks": 5, "command": "train.py", "why": "It has ended."}
    begun = {"pid": 71, **row, "job": NUMBER, "step": "7"}
    ended = {"pid": 73, **row, "job": NUMBER, "step": "3"}
    # Of another job that is over, which had a step of that number too; and of none.
    others = [{"pid": 79, **row, "job": "9", "step": "7"}, {"pid": 70, **row, "job": None, "step": None}]
    world.node("n2", 1, {"would_end": [begun, ended, *others]}, (0, {"ended": [73], "returned": True}))
    code, out, _err = world.run("clean", "--all-nodes", "--session", SESSION, "--yes")
    assert code == 0 and "71" not in out, out
    assert "--exactly=73:5,79:5,70:5" in world.asked()[1]
    # Nothing else is left over there: the node is clean.
    for more, wanted in (({}, 0), ({"unknown": [SILENT_GPU]}, 3), (MPS, 1)):
        (world.folder / "count").unlink()
        world.node("n2", 1, {"would_end": [begun], **more})
        code, out, _err = world.run("clean", "--all-nodes", "--session", SESSION, "--yes")
        assert code == wanted and ("On n2: nothing of yours is left over." in out) == (wanted == 0), out


def test_the_steps_could_not_be_told_after_the_nodes_had_looked(world: Job) -> None:
    """Nothing is ended there by the list that is older than the look."""
    count = f"{world.folder}/count"
    world.steps(f'echo x >>{count}; case "$(/bin/cat {count})" in x) echo STEPID; echo {NUMBER}.0 ;; *) exit 1 ;; esac')
    world.node("n2", 1, LEFT, (0, {"ended": [77]}))
    code, out, _err = world.run("clean", "--all-nodes", "--session", SESSION, "--yes")
    assert code == 3 and "n2 could not be looked at: The steps of job" in out and len(world.asked()) == 1


def test_more_than_one_word_can_hold(world: Job) -> None:
    """The kernel takes 128 KiB in a word; what a node has to end is said in several."""
    rows = [{**LEFT["would_end"][0], "pid": pid, "start_ticks": 10**18 + pid} for pid in range(4_000_000, 4_005_000)]
    world.node("n2", 1, {"would_end": rows}, (0, {"ended": [77], "returned": True}))
    code, out, _err = world.run("clean", "--all-nodes", "--session", SESSION, "--yes")
    assert code == 0 and "On n2: 1 process ended." in out, out[-500:]
    words = [word for word in world.asked()[1].split() if word.startswith("--exactly=")]
    assert all(len(word) < 128 * 1024 for word in words)
    assert [pair for word in words for pair in word[10:].split(",")] == [f"{r['pid']}:{r['start_ticks']}" for r in rows]
    # What it makes of them there.
    mine = [f"--exactly={os.getpid()}:1", "--exactly=1:1,2:2"]
    assert world.json("clean", "--dry-run", *mine)[0] == 0
    parsed = cli._parser().parse_args(["clean", *mine])
    assert parsed.exactly == [(os.getpid(), 1), (1, 1), (2, 2)]


@pytest.mark.parametrize("look", ["node", "jobs"])
def test_this_node_could_not_be_looked_at(look: str) -> None:
    """Which nodes there are is not known then: said, and no all-clear."""
    found = elsewhere.ask(survey(**{look: Unknown("It hung.")}, inside="42"), Config(), SESSION)
    assert found.unsure and found.why == "It hung." and not found.stays and found.json() == []


def test_without_a_session(world: Job) -> None:
    """This node is not called clean where another is not; what was left over is looked for, not one session's."""
    for code, told in ((3, {"unknown": [SILENT_GPU]}), (1, MPS), (0, {})):
        world.node("n2", code, told)
        found, out, _err = world.run("clean", "--all-nodes", "--dry-run")
        # Whoever runs the tests may have something here.
        assert found == code or "would be ended" in out
        assert "Clean:" not in out or code == 0
        assert "--session" not in world.asked()[-1]


def test_a_pid_is_of_this_node_alone(world: Job) -> None:
    code, _out, err = world.run("clean", "--all-nodes", "--yes", "1")
    assert code == 2 and "--all-nodes" in err


def test_the_other_nodes_speak_the_language_of_this_one(world: Job) -> None:
    world.says("n2", f'echo "$HANDWASH_LANG" >{world.folder}/language; exit 1')
    world.run("clean", "--all-nodes", "--dry-run", env={"LANG": "zh_CN.UTF-8"})
    assert (world.folder / "language").read_text() == "zh_CN\n"


def test_the_real_one_answers_as_expected(world: Job) -> None:
    """What this release's own `clean --json` prints is an answer, by its own reader."""
    for words in (["--dry-run"], ["--session", SESSION, "--yes"], ["--yes", "1"]):
        code, out, err = world.run("clean", "--json", *words)
        answer = read_answer((code, out.encode(), err.encode(), False))
        assert isinstance(answer, Answer) and answer.code == code
        assert bool(answer.refused) == (words[-1] == "1")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*NOTHING, "would_end", "pid", "why"]), inner),
)


@given(code=st.none() | st.integers(-15, 255), told=JSON, garbage=st.binary(), shift=st.integers(0, 40))
def test_any_answer_is_read_or_refused(code: int | None, told: Any, garbage: bytes, shift: int) -> None:
    """Never a fault, never an empty reason; only the three exit codes and a whole object make an answer."""
    whole = json.dumps({**NOTHING, **(told if isinstance(told, dict) else {})}).encode()
    for out in (garbage, json.dumps(told).encode(), whole, whole[shift:]):
        answer = read_answer((code, out, garbage, False))
        if isinstance(answer, str):
            assert answer
        else:
            assert answer.code == code and code in (0, 1, 3)
            assert answer.code != 3 or answer.unsure
            for item in [*answer.told["left"], *answer.told["held_back"], *answer.told.get("would_end", [])]:
                assert isinstance(item["pid"], int) and re.match("", item["why"]) is not None
    assert isinstance(read_answer((code, whole, b"", True)), str)


# Who looks at one node alone says so


@pytest.mark.parametrize(
    "words", [("banner",), ("leave", "exit"), ("leave", "eof"), ("check",), ("status",)], ids=" ".join
)
def test_nodes_that_nobody_looked_at_are_named(world: Job, words: tuple[str, ...]) -> None:
    """In a salloc shell and inside the job, one line without a further question to the scheduler; else nothing."""
    world.nodes("n1", "n2")
    world.env["HANDWASH_ON_EXIT"] = "warn"
    count = 'echo x >>"$HOME/questions"; '
    world.script("squeue", f"{count}exec /bin/cat {world.folder}/answer")
    line = "Not looked at: {nodes}, of the same job. To look there: handwash clean --all-nodes --dry-run"
    for inside, nodes in (({}, "n1, n2"), ({"SLURMD_NODENAME": "n1"}, "n2")):
        (world.home / "questions").write_text("")
        _code, out, err = world.run(*words, env=inside)
        assert (out + err).count("Not looked at") == 1 and line.format(nodes=nodes) in out + err
        assert (world.home / "questions").read_text() == "x\n"
    world.nodes("n1")
    for more in ({"SLURMD_NODENAME": "n1"}, {"SLURM_JOB_ID": None}):
        _code, out, err = world.run(*words, env=more)
        assert "Not looked at" not in out + err
    world.nodes(*(f"n{number}" for number in range(1, 100)))
    _code, out, err = world.run(*words)
    assert line.format(nodes="n1, n2, n3, …, n99") in out + err


def test_nobody_is_there_to_read_it(world: Job) -> None:
    code, out, err = world.run("leave", "hup")
    assert (code, out, err) == (0, "", "")


@pytest.mark.parametrize("inside", [{}, {"SLURMD_NODENAME": "n1"}], ids=["salloc shell", "first component"])
def test_the_other_components_of_a_heterogeneous_job(world: Job, inside: dict[str, str]) -> None:
    """Their nodes are this job's too; each is looked at through its component, and the steps of all of them count."""
    rows = []
    for place, node in enumerate(("n1", "n[2-3]")):
        number = str(int(NUMBER) + place)
        row = FIELDS.replace("123", number, 1).replace("120_3", f"{NUMBER}+{place}").replace("n1", node, 1)
        rows.append(f"{row}bash\x1e\n")
    (world.folder / "answer").write_text("".join(rows))
    world.script(
        "squeue",
        f'case "$*" in *--steps*) echo "$*" >"$HOME/steps"; echo STEPID {NUMBER}+0.0 ;;'
        f" *) exec /bin/cat {world.folder}/answer ;; esac",
    )
    wanted = ["n1", "n2", "n3"] if not inside else ["n2", "n3"]
    _code, out, _err = world.run("check", env=inside)
    assert f"Not looked at: {', '.join(wanted)}, of" in out
    for node in wanted:
        world.node(node, 0, {})
    assert world.run("clean", "--all-nodes", "--session", SESSION, "--dry-run", env=inside)[0] == 0
    asked = {line.partition("--nodelist=")[2].split()[0]: line for line in world.asked()}
    assert sorted(asked) == wanted
    for node, line in asked.items():
        assert f"--jobid={NUMBER} --het-group={0 if node == 'n1' else 1} " in line
    assert f"{NUMBER},{int(NUMBER) + 1}" in (world.home / "steps").read_text()
