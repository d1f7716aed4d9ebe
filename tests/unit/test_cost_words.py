"""Command lines taken apart: shell code into simple commands, options of three programs, prefixes; nothing is a fault."""

from __future__ import annotations

import shlex
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handwash import run
from handwash.cost import options, shellcode, verdict
from handwash.cost.count import Part, number
from handwash.cost.shellcode import DYNAMIC, Compound, commands
from handwash.cost.sources import Here, Sources
from handwash.cost.weigh import weigh
from handwash.model import Node, Unknown
from handwash.schedulers import slurm_limits
from handwash.srun import arguments
from handwash.srun.options import OPTIONS

word = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=8)
plain_word = st.text("abcxyz019-_./=", min_size=1, max_size=8).filter(lambda text: text not in ("-", "!"))


PARTITION = slurm_limits.Limits("main", True, None, None, False, (slurm_limits.Group(("g1",), 1, 8),))


def sources(**changes):
    """A login node of a cluster, where every name is a compiled program and there is no file."""
    nothing = Unknown("not asked")
    node = Node("login", "h", None, False, ())
    answers = {
        "partitions": lambda _cluster: (PARTITION,),
        "pbs": lambda: nothing,
        "jobs": lambda: (),
        "here": lambda: Here(node, (), ()),
        "text": lambda _path: nothing,
        "script": lambda _word, _folder: nothing,
        "program": lambda path: "" if path.startswith("/bin/") else None,
        "find": lambda word, _search: f"/bin/{word}" if word else None,
    }
    return Sources(**{**answers, **changes})


# Shell code


@given(
    st.lists(st.tuples(plain_word, st.lists(word, max_size=4)), min_size=1, max_size=4),
    st.sampled_from(["; ", " && ", "\n", " | ", " & "]),
)
def test_quoted_words_of_a_list_come_through_whole(lines, between):
    lines = [[first, *rest] for first, rest in lines if first not in shellcode._RESERVED]
    assert commands(between.join(map(shlex.join, lines))) == lines


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("a # b\nc", [["a"], ["c"]]),
        ("a b#c", [["a", "b#c"]]),
        ("a >f 2>&1 <g b &>h", [["a", "b"]]),
        ("a>f;b 2>/dev/null&", [["a"], ["b"]]),
        ("a <<<x b", [["a", "b"]]),
        ("! a || b |& c", [["a"], ["b"], ["c"]]),
        ("a \"b c\"'d'\\ e", [["a", "b cd e"]]),
        ("a $B ${C:-x} \"$D\" '$E' \\$F", [["a", DYNAMIC, DYNAMIC, DYNAMIC, "$E", "$F"]]),
        ("a \\\nb", [["a", "b"]]),
        ("a\\\nb \"c\\\nd\" 'e\\\nf' > \\\n g \\\n; h", [["ab", "cd", "e\\\nf"], ["h"]]),
        ("'if' a", [["if", "a"]]),
        ("", []),
        ("# nothing", []),
    ],
)
def test_lists_of_commands(code, found):
    assert commands(code) == found


@pytest.mark.parametrize(
    "code",
    """if a; then b; fi|for x in y; do z; done|while a; do b; done|(a)|a $(b)|a `b`|a "$(b)"|a "`b`"|f() { a; }|{ a; }|a <(b)
a <<E|a 'b|a "b|[[ a ]]|a ${b:-$(c)}|a $'b'|a ;; b""".replace("\n", "|").split("|"),
)
def test_more_than_a_list_is_not_guessed_at(code):
    with pytest.raises(Compound):
        commands(code)


@given(st.text(max_size=40))
def test_no_code_is_a_fault(code):
    try:
        assert all(line for line in commands(code))
    except Compound:
        pass


# Options


@pytest.mark.parametrize("table", [options.SALLOC, options.SBATCH, OPTIONS])
@given(data=st.data())
def test_each_programs_options(table, data):
    """Every option of the table in each of its forms; the command begins where it does."""
    name = data.draw(st.sampled_from(sorted(table)))
    argument, short, _since, _until = table[name]
    forms = [[f"--{name}=v"]] if argument != "no" else [[f"--{name}"]]
    if argument == "required":
        forms.append([f"--{name}", "v"])
    if short:
        forms.append([f"-{short}"] if argument == "no" else [f"-{short}v"])
    words = data.draw(st.sampled_from(forms))
    line = arguments.parse([*words, "run", "--x"], table=table)
    assert line.doubtful is None
    assert line.components[0].command == ("run", "--x")
    assert line.components[0].get(name) == ("" if argument == "no" else "v")


def test_letters_are_those_of_the_program():
    """-W waits in sbatch and takes a time in srun; -a is an array in sbatch alone; -K is optional in salloc."""
    assert arguments.parse(["-W", "job.sh"], table=options.SBATCH).components[0].command == ("job.sh",)
    assert arguments.parse(["-W", "5", "run"]).get("wait") == "5"
    assert arguments.parse(["-a", "1-4", "x"], table=options.SBATCH).get("array") == "1-4"
    assert arguments.parse(["-a", "x"], table=options.SALLOC).doubtful == "-a"
    assert arguments.parse(["-KTERM", "x"], table=options.SALLOC).get("kill-command") == "TERM"
    for table in (options.SALLOC, options.SBATCH):
        letters = [row[1] for row in table.values() if row[1]]
        assert len(letters) == len(set(letters))


# The whole

CORE = [
    "srun",
    "sbatch",
    "salloc",
    "env",
    "sudo",
    "bash",
    "-c",
    "-u",
    "--",
    ":",
    "--gres=gpu:1",
    "-N1-2",
    "-t",
    "--wrap",
    "timeout",
]


@given(st.lists(st.one_of(st.sampled_from(CORE), word), max_size=8))
def test_no_command_line_is_a_fault(words):
    found = weigh(words, {}, sources())
    assert found.verdict in (verdict.NO, verdict.IF_USED, verdict.YES, verdict.UNKNOWN)
    assert found.why or found.unknown
    assert (found.max_gpu_hours == 0) == (found.verdict == verdict.NO) or found.verdict == verdict.YES
    assert found.verdict != verdict.UNKNOWN or found.unknown


AROUND = """{}
nohup {}
env A=1 {}
nice -n 3 {}
timeout 5 {}
bash -c {q}
sh -lc {q}
eval {q}
exec {}
A=b {}
stdbuf -o L {}
setsid -w {}
sudo -E {}""".splitlines()


@given(st.sampled_from(["srun", "salloc", "sbatch --wrap x"]), st.sampled_from(AROUND))
def test_no_prefix_hides_a_job(command, around):
    """Never a wrong no."""
    line = f"{command} --gres=gpu:2 -t 1:0:0" + (" x" if command == "srun" else "")
    words = shlex.split(around.format(line, q=shlex.quote(line)))
    found = weigh(words, {}, sources())
    assert (found.verdict, found.gpus, found.max_gpu_hours) == (verdict.YES, 2, 2)


@given(st.lists(st.sampled_from(["ls", "python x", "srun -G1 -t60 a", "ssh n"]), min_size=1, max_size=5))
def test_several_commands_add_up(lines):
    """A job among them costs, whatever else there is; what could not be told is never taken for nothing."""
    found = weigh(["bash", "-c", "; ".join(lines)], {}, sources())
    jobs = lines.count("srun -G1 -t60 a")
    if jobs:
        assert found.verdict == verdict.YES
        assert found.max_gpu_hours == (None if "ssh n" in lines else jobs)
    else:
        assert found.verdict == (verdict.UNKNOWN if "ssh n" in lines else verdict.NO)


def test_a_script_that_runs_itself_comes_to_an_end():
    looping = sources(program=lambda _path: "#!/bin/sh\n" + "./self.sh\n" * 50)
    assert weigh(["./self.sh"], {}, looping).verdict == verdict.UNKNOWN


@pytest.mark.parametrize(
    "piece", [";", "a;", "a=", "/", "sh -a ", "$a ", "unset ", "do ", "-srun", "\\\n", "'", "a.sh "]
)
def test_a_file_that_is_one_long_line_does_not_hold_it_up(piece):
    """The time that it takes grows no faster than the text."""
    text = piece * (256 * 1024 // len(piece))
    begun = time.monotonic()
    for code in (text, "if " + text):
        found = weigh(["./x"], {}, sources(program=lambda path, code=code: code if path == "./x" else None))
        assert found.verdict in (verdict.NO, verdict.UNKNOWN)
    assert time.monotonic() - begun < 15


@given(st.fractions(0, 1000))
def test_a_bound_is_never_rounded_down(value):
    assert value <= Fraction(number(value)) <= value + Fraction(1, 1000)


def test_what_adds_up_and_what_does_not():
    hour = Part(Fraction(1), Fraction(2), 3600, copies=10)
    endless = Part(Fraction(1), Fraction(1), None)
    assert verdict.of_parts((hour,), (), (), "").max_gpu_hours == 20
    assert verdict.of_parts((hour, endless), (), (), "").max_gpu_hours is None
    nothing = Part(Fraction(0), Fraction(0), None)
    assert verdict.of_parts((hour, nothing), (), (), "").max_gpu_hours == 20
    assert verdict.of_parts((nothing,), (), (), "").verdict == verdict.NO


# sinfo

ROW = "main*|n/a|infinite|NO|2|gpu:a100:4(S:0-1),shard:a100:16|g[1-2]"


def parsed(*rows, err=b"", code=0):
    out = "".join(row.replace("|", "\x1f") + "\x1e\n" for row in rows)
    return slurm_limits.parse_limits(run.Result(code, out.encode(), err, False))


def test_partitions():
    (main, short) = parsed(
        ROW, "short|10:00|1-00:00:00|EXCLUSIVE|1|(null)|c1", ROW.replace("g[1-2]", "h1").replace("|2|", "|1|")
    )
    assert (main.name, main.default, main.default_s, main.max_s, main.whole_nodes) == ("main", True, None, None, False)
    assert [(group.names, group.count, group.gpus, group.shards) for group in main.groups] == [
        (("g1", "g2"), 2, 4, 16), (("h1",), 1, 4, 16),
    ]  # fmt: skip
    assert (short.default, short.default_s, short.max_s, short.whole_nodes, short.groups[0].gpus) == (
        False,
        600,
        86400,
        True,
        0,
    )
    assert parsed() == ()
    (odd,) = parsed(ROW.replace("shard:a100:16", "dcu:4(S:0),tmpdisk:10,card:8"))
    assert (odd.groups[0].gpus, odd.groups[0].strange, main.groups[0].strange, short.groups[0].strange) == (
        8,
        "card",
        "",
        "",
    )
    assert parsed("CLUSTER: x\n" + ROW)[0].name == "main"


@pytest.mark.parametrize(
    "rows",
    [
        ["x"],
        [ROW + "|y"],
        [ROW.replace("infinite", "soon")],
        [ROW.replace("|2|", "|two|")],
    ],
)
def test_what_cannot_be_read_is_not_nothing(rows):
    with pytest.raises(run.CouldNotTell):
        parsed(*rows)


def test_a_scheduler_that_complains_has_not_answered():
    for failure in ({"err": b"slurm_load_partitions: down", "code": 0}, {"code": 1}):
        with pytest.raises(run.CouldNotTell):
            parsed(ROW, **failure)
