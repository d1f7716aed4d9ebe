"""Times, node counts, resources, arrays and #SBATCH lines, as Slurm reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handwash.cost import amounts, script
from handwash.cost.amounts import Gres, Unreadable

small = st.integers(0, 500)
anything = st.text(max_size=12)


def whole_minutes(seconds):
    return (seconds + 59) // 60 * 60 or None


@given(small, small, small, small)
def test_every_form_of_a_time(days, hours, minutes, seconds):
    """Slurm rounds up to whole minutes; nothing at all means no limit."""
    assert amounts.time_limit(f"{minutes}") == whole_minutes(minutes * 60)
    assert amounts.time_limit(f"{minutes}:{seconds}") == whole_minutes(minutes * 60 + seconds)
    clock = hours * 3600 + minutes * 60 + seconds
    assert amounts.time_limit(f"{hours}:{minutes}:{seconds}") == whole_minutes(clock)
    assert amounts.time_limit(f"{days}-{hours}") == whole_minutes(days * 86400 + hours * 3600)
    assert amounts.time_limit(f"{days}-{hours}:{minutes}") == whole_minutes(days * 86400 + hours * 3600 + minutes * 60)
    assert amounts.time_limit(f"{days}-{hours}:{minutes}:{seconds}") == whole_minutes(days * 86400 + clock)


def test_no_limit():
    for text in ("UNLIMITED", "unlimited", "Infinite", "-1", "0", "0:00", "00:00:00", "0-0"):
        assert amounts.time_limit(text) is None
    assert amounts.time_limit("1-") == 86400
    assert amounts.time_limit("0:01") == 60


@pytest.mark.parametrize(
    "text", ["", "x", "1:", ":1", "1:2:3:4", "1-2-3", "-5", "1 ", "１", "1.5", "1h", "1:2-3", "9" * 30]
)
def test_no_time(text):
    with pytest.raises(Unreadable):
        amounts.time_limit(text)


@given(st.integers(1, 99), st.integers(0, 99), st.integers(1, 9))
def test_node_counts(low, more, step):
    high = low + more
    assert amounts.node_range(f"{low}") == (low, low)
    assert amounts.node_range(f"{low}-{high}") == (low, high)
    steps = list(range(low, high + 1, step))
    assert amounts.node_range(f"{low}-{high}:{step}") == (low, steps[-1])
    assert amounts.node_range(f"{high},{low}") == (low, high)
    assert amounts.node_range(f"{low}k") == (low * 1024, low * 1024)


@pytest.mark.parametrize("text", ["", "0", "-", "1-", "-4", "4-2", "x", "1,", ",1", "2-4:0", "1-2-3", "２"])
def test_no_node_count(text):
    with pytest.raises(Unreadable):
        amounts.node_range(text)


items = st.tuples(
    st.sampled_from(["gpu", "shard", "mps", "tmpdisk"]),
    st.sampled_from(["", ":a100", ":h100_80gb"]),
    st.one_of(st.none(), st.integers(0, 64)),
    st.sampled_from(["", "gres/", "gres:"]),
    st.sampled_from([":", "="]),
)


@given(st.lists(items, max_size=5))
def test_lists_of_resources(parts):
    """Each in every way in which it can be written; other resources are passed over, parts of a GPU are no GPUs."""
    text, sums = [], {"gpu": 0, "shard": 0, "mps": 0, "tmpdisk": 0}
    for name, kind, count, prefix, sign in parts:
        text.append(prefix + name + kind + ("" if count is None else f"{sign}{count}"))
        sums[name] += 1 if count is None else count
    assert amounts.gres(",".join(text)) == Gres(sums["gpu"], sums["shard"], sums["mps"])


def test_resources():
    assert amounts.gres("none") == amounts.gres("") == Gres()
    assert amounts.gres("gpu:1k").gpus == 1024
    assert amounts.gres("a100:2,v100:1", "gpus", "gpu:").gpus == 3
    assert amounts.gres("4", "gpus", "gpu:").gpus == 4
    assert amounts.gres("a100", "gpus", "gpu:").gpus == 1
    assert amounts.gres_of_tres("cpu:4,gres/gpu:2,license/gpu:9") == Gres(2)
    assert amounts.gres_of_tres("cpu=4,gres/gpu:a100=3") == Gres(3)
    for text in ("gpu:", "gpu::2", "gpu:a:b:2", "gpu:a:b", "gpu:2x"):
        with pytest.raises(Unreadable):
            amounts.gres(text)


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300), st.integers(1, 50)), min_size=1, max_size=5),
    st.one_of(st.none(), st.integers(1, 50)),
)
def test_arrays(ranges, throttle):
    """As many tasks as there are different indices; the throttle takes none away."""
    indices = set()
    words = []
    for first, more, step in ranges:
        indices.update(range(first, first + more + 1, step))
        words.append(f"{first}-{first + more}:{step}" if more else str(first))
    text = ",".join(words) + (f"%{throttle}" if throttle else "")
    assert amounts.array(text) == (len(indices), throttle)


def test_an_array():
    assert amounts.array("0-9%2,20") == (11, 2)
    assert amounts.array("[1,3-5]") == (4, None)
    for text in ("", "x", "5-1", "1-9:0", "4000001", "-3", "1--2"):
        with pytest.raises(Unreadable):
            amounts.array(text)


@given(anything)
def test_nothing_that_is_typed_is_a_fault(text):
    for read in (amounts.time_limit, amounts.node_range, amounts.gres, amounts.gres_of_tres, amounts.array):
        try:
            read(text)
        except Unreadable as reason:
            assert str(reason)


# Batch scripts


def lines(*text):
    return script.directives("#!/bin/bash\n" + "\n".join(text)).components


blank_free = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zs", "Zl", "Zp")), min_size=1, max_size=8)


@given(
    st.lists(
        st.lists(st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=8), max_size=3),
        max_size=4,
    )
)
def test_quoted_words_come_through_whole(rows):
    """Whatever is in quotes, backslashes escaped."""
    written = ["#SBATCH " + " ".join("-J'" + quoted(word) + "'" for word in row) for row in rows]
    assert lines(*written) == (tuple("-J" + word for row in rows for word in row),)


def quoted(word):
    return word.replace("\\", "\\\\").replace("'", "\\'")


def test_where_the_options_end():
    """At the first line that is neither a comment nor empty; comments within a line are left out."""
    found = lines(
        "", "# a comment", "   ", "#SBATCH --gres=gpu:2 # two", "##SBATCH -n9", " #SBATCH -n8", "#SBATCH -t1 -J 'a b' -J\"#c\"",
        "#SBATCH--mem=1G", "#SBATCH -J a\\ b", "#SBATCH -Jx#y", "#SLURM -n3", "echo", "#SBATCH -n7",
    )  # fmt: skip
    assert found == (
        ("--gres=gpu:2", "-t1", "-J", "a b", "-J#c", "--mem=1G", "-J", "a b", "-Jx", "-n3"),
    )  # fmt: skip


def test_heterogeneous_jobs():
    assert lines("#SBATCH -n1", "#SBATCH hetjob", "#SBATCH -n2", "#SBATCH PackJob", "#SBATCH -n3") == (
        ("-n1",), ("-n2",), ("-n3",),
    )  # fmt: skip


def test_another_schedulers_lines_are_named():
    assert script.directives("#!/bin/sh\n#PBS -l walltime=1:0:0\n#SBATCH -n1\n").foreign == "#PBS -l walltime=1:0:0"
    assert script.directives("#!/bin/sh\nexit\n#PBS -l walltime=1:0:0\n").foreign == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        "echo\n",
        "#SBATCH -n1\n",
        "#!/bin/sh\r\n",
        "#!/bin/sh\n\0",
        "#!/bin/sh\n#SBATCH -J 'a\n",
        "#!/bin/sh\n#SBATCH :\n",
    ],
)
def test_what_sbatch_refuses(text):
    with pytest.raises(Unreadable):
        script.directives(text)


@given(st.text(max_size=60))
def test_no_script_is_a_fault(text):
    try:
        script.directives("#!/bin/sh\n#SBATCH " + text)
    except Unreadable as reason:
        assert str(reason)
