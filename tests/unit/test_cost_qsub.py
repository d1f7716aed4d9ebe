"""qsub's words, #PBS lines and resource lists, and what a server adds to them.

No PBS runs here. What is expected rests on the sources of OpenPBS, releases 19.1.3 to 23.06.06 and the head of April 2026
(qsub.c, qsub_sup.c, set_resource.c, grunt_parse.c, attr_fn_time.c, svr_jobfunc.c, vnparse.c), and the answers below on the way
in which its qstat.c and pbsnodes.c print them; recordings of `qstat -f` have the same form.
"""

from __future__ import annotations

import shlex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.test_cost_words import sources

from handwash import run
from handwash.cost import pbs_amounts, pbs_options, pbs_request, pbs_script, verdict
from handwash.cost.amounts import Unreadable
from handwash.cost.pbs_amounts import Chunk
from handwash.cost.weigh import weigh
from handwash.model import Unknown
from handwash.schedulers import pbs_limits

H = 3600
any_text = st.text(st.characters(blacklist_categories=("Cs",)), max_size=40)
pbs_text = st.text("0123456789:+=,#% \"'nselctgpuwodkx&()-", max_size=30)
name = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True)
value = st.text("abcxyz0189._/@-", min_size=1, max_size=6)

# Server and queues


def answer(text, code=0, err=""):
    return run.Result(code, text.encode(), err.encode(), False)


SERVER = """Server: vm
    server_state = Active
    server_host = vm
    total_jobs = 0
    state_count = Transit:0 Queued:0 Held:0 Waiting:0 Running:0 Exiting:0 Begun
\t:0\x20
    default_queue = workq
    mail_from = adm
    default_chunk.ncpus = 1
    pbs_version = 23.06.06

"""
QUEUES = """Queue: workq
    queue_type = Execution
    total_jobs = 0
    acl_users = alice,bob,carol,dave,erin,frank,grace,heidi,ivan,judy,
\tmallory
    resources_max.walltime = 12:00:00
    resources_default.walltime = 02:00:00
    enabled = True

Queue: front
    queue_type = Route
    route_destinations = workq,gpuq
    enabled = True

Queue: gpuq
    queue_type = Execution
    resources_default.place = excl
    default_chunk.ngpus = 1
    default_chunk.nchunk = 2
    started = True

Queue: elsewhere
    queue_type = Route
    route_destinations = workq@far

Queue: free
    queue_type = Execution

Queue: short
    queue_type = Execution
    resources_max.walltime = 00:30:00
    resources_max.place = excl

"""
# Two hosts with four GPUs each, one of them made of two vnodes; one with none; and one kept for a queue.
VNODES = """g1
     Mom = g1.cluster
     state = free
     resources_available.arch = linux
     resources_available.host = g1
     resources_available.mem = 16392000kb
     resources_available.ncpus = 8
     resources_available.ngpus = 4
     resources_available.vnode = g1
     resources_assigned.ncpus = 0
     sharing = default_shared
     last_state_change_time = Tue Dec  1 10:00:00 2026

g2
     Mom = g2.cluster
     resources_available.host = g2
     resources_available.ngpus = @g2[0]
     sharing = default_shared

g2[0]
     Mom = g2.cluster
     resources_available.host = g2
     resources_available.ngpus = 4
     comment =\x20
     sharing = default_shared

c1
     Mom = c1.cluster
     resources_available.host = c1
     resources_available.model = rome
     sharing = default_shared

k1
     Mom = k1.cluster
     queue = kept
     resources_available.host = k1
     resources_available.ngpus = 16
     sharing = force_exclhost

"""


def site(server=SERVER, queues=QUEUES, vnodes=VNODES):
    attributes = pbs_limits.parse_server(answer(server))
    return pbs_limits.Site(
        pbs_limits.defaults(attributes),
        attributes.get("default_queue", ""),
        attributes.get("default_qsub_arguments", ""),
        pbs_limits.parse_queues(answer(queues)),
        vnodes if isinstance(vnodes, Unknown) else pbs_limits.parse_hosts(answer(vnodes)),
    )


def cost(line, script=None, here=None, env=None, **changes):
    if script is not None:
        changes["text"] = lambda _path: script
    return weigh(shlex.split(line), env or {}, sources(pbs=lambda: site() if here is None else here, **changes))


def bounds(found):
    return found.verdict, found.gpus, found.limit_s, found.max_gpu_hours


def test_a_servers_answers():
    here = site()
    assert here.default == "workq" and here.arguments == "" and here.defaults.chunk == {"ncpus": "1"}
    assert here.queues["workq"].defaults.most == {"walltime": "12:00:00"}
    assert here.queues["front"].routes == ("workq", "gpuq") and here.queues["workq"].routes == ()
    assert [host.gpus for host in here.hosts] == [4, 4, 0, 16]
    assert [host.strange for host in here.hosts] == ["", "", "", ""]
    wrapped = pbs_limits.parse_server(answer(SERVER))["state_count"]
    assert wrapped.rstrip().endswith("Exiting:0 Begun:0")


@given(
    st.lists(st.text("abc =,.:/", min_size=1, max_size=9), min_size=1, max_size=6),
    st.dictionaries(name, st.text("abc1 =,.:", max_size=9), max_size=3),
)
def test_a_value_goes_on_behind_a_tab(pieces, others):
    """Wherever the line is broken."""
    text = "Queue: q\n" + "".join(f"    o.{key} = {text}\n" for key, text in others.items())
    text += "    x.y = " + "\n\t".join(pieces) + "\n\nQueue: r\n    a = b\n"
    found = pbs_limits._blocks(answer(text), "Queue:")
    expected = {"x.y": "".join(pieces), **{f"o.{key}": text for key, text in others.items()}}
    assert found == {"q": expected, "r": {"a": "b"}}


@pytest.mark.parametrize(
    "result",
    [
        answer("", 255, "qstat: cannot connect to server vm (errno=15010)"),
        answer("", 1),
        answer("Server: vm\n    server_state = Active\n"),
        answer(""),
        answer("Server: vm\nsomething\n    pbs_version = 1\n"),
        answer("\tvm\n" + SERVER),
        run.Result(None, b"", b"", True),
        run.Result(None, SERVER.encode(), b"", False, True),
        # Slurm's own qstat.
        answer("Job id              Name             Username\n-------------------\n"),
    ],
)
def test_what_is_no_answer_of_a_server(result):
    with pytest.raises(run.CouldNotTell):
        pbs_limits.parse_server(result)


def test_what_is_no_answer_about_queues_and_hosts():
    for text in ("Queue: a\n    enabled = True\n", "Queue:\ta\n\tqueue_type = Execution\n", "x"):
        with pytest.raises(run.CouldNotTell):
            pbs_limits.parse_queues(answer(text))
    for text in ("     state = free\n", "g1\n     what\n"):
        with pytest.raises(run.CouldNotTell):
            pbs_limits.parse_hosts(answer(text))
    assert pbs_limits.parse_queues(answer("Queue: a\n    queue_type = Route\n"))["a"].routes == ("",)


@pytest.mark.parametrize(
    ("resources", "found"),
    [
        ({"ngpus": "2", "ncpus": "8", "mem": "4gb", "host": "gpu1"}, (2, "")),
        ({"naccelerators": "1"}, (1, "")),
        ({"ndcu": "4"}, (4, "")),
        ({"mlus": "4", "Gpus": "1"}, (5, "")),
        ({"npu": "8"}, (8, "")),
        ({"ngpus": "0"}, (0, "")),
        ({"card": "2"}, (0, "card")),
        ({"card": "0", "bigmem": "true"}, (0, "")),
        ({"model": "rome"}, (0, "")),
        # A description beside a count, and without one.
        ({"ngpus": "1", "gpu_model": "a100"}, (1, "")),
        ({"ncpus": "1", "gpu_id": "gpu0"}, (0, "gpu_id")),
        ({"gpu": "True"}, (0, "gpu")),
        ({"gpu": "false"}, (0, "")),
        ({"ngpus": "$N"}, (0, "ngpus")),
        ({"ngpus": "1", "ndcu": "0.5"}, (1, "ndcu")),
    ],
)
def test_which_resources_are_gpus(resources, found):
    assert pbs_limits.gpus_in(resources) == found


# Values


@given(
    st.lists(
        st.tuples(st.none() | st.integers(0, 99), st.dictionaries(name, value, max_size=3)), min_size=1, max_size=4
    )
)
def test_a_selection_comes_through_whole(chunks):
    chunks = [(count, pairs) for count, pairs in chunks if count is not None or pairs] or [(1, {})]
    pieces = [
        ":".join([*([] if count is None else [str(count)]), *(f"{key}={text}" for key, text in pairs.items())])
        for count, pairs in chunks
    ]
    if all(count == 0 for count, _pairs in chunks):
        with pytest.raises(Unreadable):
            pbs_amounts.select("+".join(pieces))
    else:
        assert pbs_amounts.select("+".join(pieces)) == tuple(Chunk(count, pairs) for count, pairs in chunks)


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("1", [(1, {})]),
        ("ngpus=1", [(None, {"ngpus": "1"})]),
        (" 2 :ncpus=4:ngpus=2+1:ngpus=1+", [(2, {"ncpus": "4", "ngpus": "2"}), (1, {"ngpus": "1"})]),
        ("1:a='x:y+z':ngpus=1:", [(1, {"a": "x:y+z", "ngpus": "1"})]),
        ("0:ngpus=1+1:ncpus=1", [(0, {"ngpus": "1"}), (1, {"ncpus": "1"})]),
    ],
)
def test_selections(text, chunks):
    assert pbs_amounts.select(text) == tuple(Chunk(*chunk) for chunk in chunks)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+1",
        "1++1",
        "1:ngpus",
        "2ngpus=1",
        ":ngpus=1",
        "1:=1",
        "1:ngpus=1:ngpus=2",
        "0",
        "1:a='x",
        "(1:ngpus=1)",
        "1::ngpus=1",
    ],
)
def test_what_is_no_selection(text):
    with pytest.raises(Unreadable):
        pbs_amounts.select(text)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("ngpus=2", [("ngpus", "2")]),
        ("select=2:ngpus=1,walltime=1:0:0", [("select", "2:ngpus=1"), ("walltime", "1:0:0")]),
        (" select=1 walltime=5", [("select", "1"), ("walltime", "5")]),
        ("a='x,y',b=\"it's\",c", [("a", "x,y"), ("b", "it's"), ("c", "")]),
        ("", []),
    ],
)
def test_lists_of_resources(text, pairs):
    assert pbs_amounts.resource_list(text) == pairs


@pytest.mark.parametrize("text", [",", "a=1,", "=1", "a='x", "a=&", "a=1 "])
def test_what_is_no_list_of_resources(text):
    with pytest.raises(Unreadable):
        pbs_amounts.resource_list(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("1:30", 90),
        ("1:00:00", H),
        ("0.2", 1),
        ("1:0.0", 60),
        ("1:00:00:00", 24 * H),
        ("100:00:00", 100 * H),
    ],
)
def test_times(text, seconds):
    assert pbs_amounts.seconds("walltime", text) == seconds


@pytest.mark.parametrize("text", ["", "0", "x", ":1", "1:", "1-0", "1:2:3:4:5", "-1", "1h"])
def test_what_is_no_time(text):
    with pytest.raises(Unreadable):
        pbs_amounts.seconds("walltime", text)


@given(st.integers(0, 9999), st.integers(0, 999), st.integers(1, 50), st.none() | st.integers(1, 9))
def test_arrays(first, more, step, at_once):
    text = f"{first}-{first + more}:{step}" + (f"%{at_once}" if at_once else "")
    assert pbs_amounts.array(text) == (len(range(first, first + more + 1, step)), at_once)


@pytest.mark.parametrize("text", ["", "5", "3-1", "1-2:0", "1-x", "1,2", "0-9%x"])
def test_what_is_no_array(text):
    with pytest.raises(Unreadable):
        pbs_amounts.array(text)


@given(pbs_text | any_text)
@example("\x1f")
@example("max_run_subjobs=²")
def test_no_value_is_a_fault(text):
    for read in (
        pbs_amounts.select,
        pbs_amounts.nodes,
        pbs_amounts.resource_list,
        pbs_amounts.array,
        lambda one: pbs_amounts.seconds("walltime", one),
        lambda one: pbs_request.request([[("W", one), ("J", "1-2")]]),
        lambda one: pbs_script.directives("#PBS " + one),
        lambda one: pbs_options.parse(one.split()),
    ):
        try:
            read(text)
        except Unreadable as reason:
            assert str(reason)


# Words


@given(st.lists(st.sampled_from(["-I", "-V", "-zf", "-hlngpus=1", "-N", "-q", "-l", "--", "x", "-", "-?"]), max_size=6))
def test_no_words_are_a_fault(words):
    try:
        line = pbs_options.parse(words)
    except Unreadable:
        return
    assert line.command == () or "--" in words


@given(st.lists(any_text, max_size=5))
def test_words_in_quotes_come_through_whole(words):
    assert pbs_options.split(shlex.join(words), "x") == words


def test_lines_of_a_script():
    read = pbs_script.directives
    script = "#!/bin/sh\n# text\n:\n\n  #PBS -l ngpus=1 -q a\n##PBS -l ngpus=9\n#PBS-N x\n#PBS\nls\n#PBS -l ngpus=8\n"
    assert read(script) == pbs_script.Directives((("l", "ngpus=1"), ("q", "a"), ("N", "x")), 10)
    assert read("#PBS -l \\\n  ngpus=1\\\n,ncpus=2\nls\n").options == (("l", "ngpus=1,ncpus=2"),)
    assert read("#PBS -l ngpus=1", "").options == () and read("#PBS -l ngpus=1", "#X").options == ()
    assert read("#X -l ngpus=1\n", "#X").options == (("l", "ngpus=1"),)
    assert read("#PBS -N 'a b' -A a\\ b").options == (("N", "a b"), ("A", "a b"))
    for wrong in ("#PBS -l ngpus=1 # one", "#PBS -- ls", "#PBS -Y", "#PBS -N 'a", "#PBS -N a\r\n"):
        with pytest.raises(Unreadable):
            read(wrong)
    assert pbs_script.is_meant("x\n #PBS -q a") and not pbs_script.is_meant("## PBS\n#!PBS\n")


# What it costs

NOTHING = (verdict.NO, 0, None, 0)
COSTS = {
    "qsub -l select=2:ncpus=4:ngpus=2+1:ngpus=1 -l walltime=1:00:00 -- /bin/a": (verdict.YES, 5, H, 5),
    "qsub -l select=1:ngpus=2,walltime=30:00 -- /bin/a": (verdict.YES, 2, H / 2, 1),
    "qsub -lngpus=2 -lwalltime=3600 -- /bin/a": (verdict.YES, 2, H, 2),
    "qsub -l nodes=2:ppn=4:gpus=1 -l walltime=1:00:00 -- /bin/a": (verdict.YES, 2, H, 2),
    "qsub -l nodes=g1+g2#gpus=2 -l walltime=1:00:00 -- /bin/a": (verdict.YES, 4, H, 4),
    "qsub -l select=1:ngpus=1 -- /bin/a": (verdict.YES, 1, 2 * H, 2),
    "qsub -q free -l select=1:ngpus=1 -- /bin/a": (verdict.YES, 1, None, None),
    "qsub -q short -l select=1:ngpus=1 -- /bin/a": (verdict.YES, 1, H / 2, 0.5),
    "qsub -J 0-9:2%3 -l ngpus=1,walltime=1:0:0 -- /bin/a": (verdict.YES, 5, H, 5),
    "qsub -I -X -l select=1:ngpus=1 -l walltime=1:00:00": (verdict.YES, 1, H, 1),
    "qsub -W interactive=true,group_list=a -l ngpus=1,walltime=60:0": (verdict.YES, 1, H, 1),
    "qsub -l select=1:ncpus=4:mem=4gb -- /bin/a": NOTHING,
    "qsub -V -N a -- /bin/a": NOTHING,
    "qsub --version": NOTHING,
    "qsub -l select=1:ngpus=0 -- /bin/a": NOTHING,
    # Whole hosts: all GPUs of as many hosts as there are chunks, those that one can get.
    "qsub -l select=1:ncpus=1 -l place=excl -l walltime=1:0:0 -- /bin/a": (verdict.YES, 4, H, 4),
    "qsub -l select=1:ngpus=1 -l place=pack:group=host,walltime=1:0:0 -- /bin/a": (verdict.YES, 1, H, 1),
    "qsub -l select=2:ngpus=1 -l place=scatter:exclhost,walltime=1:0:0 -- /bin/a": (verdict.YES, 8, H, 8),
    "qsub -l nodes=1#excl,walltime=1:0:0 -- /bin/a": (verdict.YES, 4, H, 4),
    "qsub -l select=9:ngpus=1 -l place=excl,walltime=1:0:0 -- /bin/a": (verdict.YES, 9, H, 9),
    # What the queue adds: a GPU to each chunk, two chunks where none are counted, whole hosts.
    "qsub -q gpuq -l select=ncpus=1 -l place=shared,walltime=1:0:0 -- /bin/a": (verdict.YES, 2, H, 2),
    "qsub -q gpuq -l select=1:ncpus=1 -l place=shared,walltime=1:0:0 -- /bin/a": (verdict.YES, 1, H, 1),
    "qsub -q gpuq -l select=1:ngpus=0 -l place=shared -- /bin/a": NOTHING,
    "qsub -q gpuq -l walltime=1:0:0 -- /bin/a": (verdict.YES, 4, H, 4),
    "qsub -q gpuq -l select=1:ngpus=0 -l walltime=1:0:0 -- /bin/a": (verdict.YES, 4, H, 4),
    # A routing queue: whichever of the two costs more.
    "qsub -q front -l select=1:ncpus=1 -l walltime=1:0:0 -- /bin/a": (verdict.YES, 4, H, 4),
    "qsub -q front -l select=1:ncpus=1 -- /bin/a": (verdict.YES, 4, None, None),
    # A time between two.
    "qsub -l ngpus=1 -l min_walltime=1:0:0,max_walltime=3:0:0 -- /bin/a": (verdict.YES, 1, 3 * H, 3),
    "qsub -l ngpus=1 -l min_walltime=3:0:0 -- /bin/a": (verdict.YES, 1, 3 * H, 3),
    "qsub -q free -l ngpus=1 -l min_walltime=1:0:0 -- /bin/a": (verdict.YES, 1, None, None),
    "env X=y nohup qsub -l ngpus=2,walltime=1:0:0 -- /bin/a": (verdict.YES, 2, H, 2),
}


@pytest.mark.parametrize("line", COSTS)
def test_what_a_line_costs(line):
    assert bounds(cost(line)) == COSTS[line]


@pytest.mark.parametrize(
    "line",
    """qsub
qsub -
qsub -l ngpus=1
qsub -l card=2 -- /bin/a
qsub -l select=1:gpu_id=gpu0 -- /bin/a
qsub -l select=1:card=2 -- /bin/a
qsub -l select=1:ncpus=1 -l card=2 -- /bin/a
qsub -q nowhere -- /bin/a
qsub -q workq@far -- /bin/a
qsub -q @far -- /bin/a
qsub -q elsewhere -- /bin/a
qsub -t 1-4 -- /bin/a
qsub -I -J 1-2
qsub -J 1,2 -- /bin/a
qsub -W x=GRES:gpu@2 -- /bin/a
qsub -W array_indices_submitted=1-9 -- /bin/a
qsub -l select=1 -l nodes=1 -- /bin/a
qsub -l ngpus=1 -l ngpus=2 -- /bin/a
qsub -l ncpus=4:ngpus=1 -- /bin/a
qsub -l 2:ngpus=1 -- /bin/a
qsub -l 'ngpus=1;walltime=1:0:0' -- /bin/a
qsub -l ngpus=1,walltime=x -- /bin/a
qsub -l nodes=x:? -- /bin/a
qsub a.sh b
qsub a.sh -l ngpus=1
qsub --
qsub --help
qsub -- /bin/xargs qsub
qalter -l ngpus=4 1
qrls 1
python -c "os.system('qrerun 1')"
pbs_rsub -R 1 -E 2 -l select=1:ngpus=4
bash -c 'qsub -l ngpus=$N -- /bin/a'
bash -c 'qsub <a.sh'
for n in 1 2; do qsub a.sh; done""".splitlines(),
)
def test_what_is_not_known_is_no_no(line):
    found = weigh([line] if line.startswith("for") else shlex.split(line), {}, sources(pbs=site))
    assert found.verdict == verdict.UNKNOWN and found.unknown and found.max_gpu_hours is None


@pytest.mark.parametrize("line", ["qdel 1", "qstat -f", "qselect -u me", "pbsnodes -a", "qhold 1"])
def test_what_only_asks_or_gives_back(line):
    assert cost(line).verdict == verdict.NO


def test_no_server_no_bound():
    """Where nobody can be asked what it adds nothing is a no and nothing has a bound; what is known all the same is said."""
    silent = Unknown("silent")
    assert bounds(cost("qsub -l ncpus=1 -- /bin/a", here=silent)) == (verdict.UNKNOWN, None, None, None)
    found = cost("qsub -l ngpus=2,walltime=1:0:0 -- /bin/a", here=silent)
    assert bounds(found) == (verdict.YES, None, H, None) and found.unknown == ("silent",)
    assert found.parts[0].low == 2 and found.parts[0].limit_known
    assert not cost("qsub -l ngpus=2 -- /bin/a", here=silent).parts[0].limit_known
    # Hosts alone could not be told.
    found = cost("qsub -l ngpus=1 -- /bin/a", here=site(vnodes=silent))
    assert bounds(found) == (verdict.YES, None, 2 * H, None)
    assert cost("qsub -- /bin/a", here=site(vnodes=silent)).verdict == verdict.UNKNOWN
    # Slurm's own qsub hands a script on to sbatch, which reads lines of its own.
    script = "#!/bin/sh\n#PBS -l ngpus=1\n#SBATCH -t 99\n"
    assert cost("qsub a.sh", script, here=silent).verdict == verdict.UNKNOWN
    assert cost("qsub a.sh", script).verdict == verdict.YES


def test_what_a_server_adds():
    def with_server(*lines):
        return site(SERVER.replace("    pbs_version", "\n".join(f"    {line}" for line in (*lines, "pbs_version"))))

    given = with_server("resources_default.ngpus = 2")
    found = cost("qsub -- /bin/a", here=given)
    assert bounds(found) == (verdict.YES, 2, 2 * H, 4) and "The server gives it ngpus=2" in " ".join(found.why)
    # The chunks count: where they ask for some, those; where for none, the server notes its own for the job as a whole.
    assert bounds(cost("qsub -l select=1:ngpus=1 -- /bin/a", here=given)) == (verdict.YES, 1, 2 * H, 2)
    assert bounds(cost("qsub -l select=1 -- /bin/a", here=given)) == (verdict.YES, 2, 2 * H, 4)
    # A limit is a default where there is no other.
    assert cost("qsub -- /bin/a", here=with_server("resources_max.ngpus = 4")).gpus == 4
    assert cost("qsub -- /bin/a", here=with_server("resources_default.select = 2:ngpus=3")).gpus == 6
    assert cost("qsub -- /bin/a", here=with_server("default_chunk.ngpus = 3")).gpus == 3
    assert cost("qsub -- /bin/a", here=with_server("default_chunk.card = 3")).verdict == verdict.UNKNOWN
    assert (
        cost("qsub -q free -l ngpus=1 -- /bin/a", here=with_server("resources_default.walltime = 5:0:0")).limit_s
        == 5 * H
    )
    # The queue's default before the server's, the server's default before the queue's limit.
    assert cost("qsub -l ngpus=1 -- /bin/a", here=with_server("resources_default.walltime = 5:0:0")).limit_s == 2 * H
    # What it has qsub add gives way to the command line and the script.
    added = with_server("default_qsub_arguments = -l select=1:ngpus=4 -q free -l walltime=3:0:0")
    assert bounds(cost("qsub -- /bin/a", here=added)) == (verdict.YES, 4, 3 * H, 12)
    assert bounds(cost("qsub -l select=1:ncpus=1 -- /bin/a", here=added)) == NOTHING
    assert bounds(cost("qsub a.sh", "#PBS -l select=1:ngpus=1\nls\n", here=added)) == (verdict.YES, 1, 3 * H, 3)
    assert cost("qsub -- /bin/a", here=with_server("default_qsub_arguments = --what")).verdict == verdict.UNKNOWN
    assert cost("qsub -- /bin/a", here=site(SERVER.replace("default_queue", "other"))).verdict == verdict.UNKNOWN


@pytest.mark.parametrize(
    ("sharing", "place", "gpus"),
    [
        ("default_shared", "free", 1),
        ("default_shared", "excl", 4),
        ("default_excl", "free", 4),
        ("default_excl", "free:shared", 1),
        ("default_exclhost", "free:shared", 1),
        ("default_exclhost", "pack", 4),
        ("force_excl", "shared", 4),
        ("force_exclhost", "free", 4),
        ("ignore_excl", "exclhost", 1),
        ("something_new", "shared", 4),
    ],
)
def test_hosts_that_go_to_one_job_alone(sharing, place, gpus):
    """As the table in pbs_node_attributes(7B) has it."""
    here = site(vnodes=VNODES.replace("default_shared", sharing))
    assert cost(f"qsub -l select=1:ngpus=1 -l place={place} -- /bin/a", here=here).gpus == gpus


def test_a_whole_host_with_a_resource_that_may_be_a_gpu():
    here = site(vnodes=VNODES.replace("ngpus = 4", "card = 4"))
    assert cost("qsub -l select=1 -l place=excl -- /bin/a", here=here).verdict == verdict.UNKNOWN
    assert cost("qsub -l select=1 -- /bin/a", here=here).verdict == verdict.NO
    here = site(vnodes=VNODES.replace("model = rome", "gpu_model = a100"))
    assert cost("qsub -l select=1 -l place=excl -- /bin/a", here=here).verdict == verdict.UNKNOWN
    # Hosts with GPUs beside hosts that are given whole: a chunk may lie on either.
    here = site(vnodes=VNODES.replace("sharing = default_shared", "sharing = force_excl", 1))
    assert cost("qsub -l select=1:ngpus=4+1:ncpus=1 -- /bin/a", here=here).gpus == 8
    # Hosts without GPUs may be given whole.
    c1 = "host = c1\n     resources_available.model = rome\n     sharing = "
    here = site(vnodes=VNODES.replace(c1 + "default_shared", c1 + "force_excl"))
    assert cost("qsub -l select=1:ngpus=4+1:ncpus=1 -- /bin/a", here=here).gpus == 4


def test_a_script():
    script = "#!/bin/bash\n#PBS -l select=2:ngpus=1\n#PBS -l walltime=1:00:00 -J 1-3\npython x.py\n#PBS -q b\n"
    found = cost("qsub a.sh", script)
    assert bounds(found) == (verdict.YES, 6, H, 6) and "Line 5 of a.sh" in found.why[0]
    assert bounds(cost("qsub -l walltime=2:00:00 a.sh", script)) == (verdict.YES, 6, 2 * H, 12)
    assert bounds(cost("qsub -l select=1 a.sh", script)) == NOTHING
    assert bounds(cost("qsub -C '' a.sh", script)) == NOTHING
    assert bounds(cost("qsub a.sh", script, env={"PBS_DPREFIX": "#X"})) == NOTHING
    assert bounds(cost("qsub -C '#PBS' a.sh", script, env={"PBS_DPREFIX": "#X"})) == (verdict.YES, 6, H, 6)
    assert cost("bash -c 'PBS_DPREFIX=$X qsub a.sh'", script).verdict == verdict.UNKNOWN
    assert cost("qsub -I a.sh", script).verdict == verdict.UNKNOWN
    assert bounds(cost("qsub -I a.sh", "#PBS -l ngpus=1\nqsub b\n"))[:2] == (verdict.YES, 1)
    assert bounds(cost("qsub a.sh", "#PBS -I -l ngpus=1\n"))[:2] == (verdict.YES, 1)
    # Of a script in another folder nothing is known; one that submits costs more.
    assert cost("bash -c 'cd x; qsub a.sh'", script).verdict == verdict.UNKNOWN
    assert cost("qsub a.sh", "#PBS -l ncpus=1\nqsub b.sh\n").verdict == verdict.UNKNOWN
    # There are no steps under PBS: srun makes a job wherever it stands.
    assert cost("qsub a.sh", "#PBS -l ncpus=1\nsrun -G1 a\n").verdict == verdict.UNKNOWN
    assert cost("qsub a.sh", "#PBS -l ngpus=1\nsrun -G1 a\n").max_gpu_hours is None
    assert cost("qsub -l ngpus=1,walltime=1:0:0 -- /bin/srun -G1 -t60 a").max_gpu_hours == 2
    assert cost("qsub a.sh", "#PBS -l ngpus=1 # one\n").verdict == verdict.UNKNOWN
    # Run by a shell its lines are comments.
    found = weigh(["bash", "/a.sh"], {}, sources(text=lambda _path: "#!/bin/bash\n#PBS -l ngpus=4\nls\n"))
    assert found.verdict == verdict.NO and "#PBS" in found.why[0]


@given(
    st.lists(
        st.sampled_from(["ngpus=1", "select=2:ngpus=2", "walltime=1:0:0", "place=excl", "ncpus=4"]),
        min_size=1,
        max_size=4,
    )
)
def test_the_server_never_makes_it_less(lists):
    """What is asked for is within the bound, whatever the queue is, and a silent server leaves no bound at all."""
    words = ["qsub", *(f"-l{one}" for one in lists), "--", "/bin/a"]
    asked = 4 if "select=2:ngpus=2" in lists else int("ngpus=1" in lists)
    for queue in ("workq", "gpuq", "front", "free"):
        found = weigh([words[0], "-q", queue, *words[1:]], {}, sources(pbs=site))
        assert found.verdict == verdict.YES if asked else found.verdict in (verdict.YES, verdict.NO)
        assert found.gpus is not None and found.gpus >= asked
        if "walltime=1:0:0" in lists and found.verdict == verdict.YES:
            assert found.max_gpu_hours == found.gpus
    silent = weigh(words, {}, sources(pbs=lambda: Unknown("silent")))
    assert silent.verdict == (verdict.YES if asked else verdict.UNKNOWN) and silent.max_gpu_hours is None
