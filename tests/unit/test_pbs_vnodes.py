"""Where GPUs are to be had on a PBS cluster: pbsnodes' answer in the form of its sources, and the line to type."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handwash.run import CouldNotTell, Result
from handwash.schedulers import pbs_vnodes
from handwash.schedulers.base import Partition

# pbsnodes.c, prt_node; the order of attributes as in master_node_attr_def.xml.
COMMENT = "off\nfor repair\n     state = free\n     resources_available.ngpus = 64"


def vnode(name: str, **attributes: object) -> str:
    """`__` in a name stands for a dot."""
    known = {"Mom": name, "ntype": "PBS", "state": "free", "resources_available__ncpus": 64, **attributes}
    lines = [f"     {key.replace('__', '.')} = {value}" for key, value in known.items() if value is not None]
    return "\n".join([name, *lines]) + "\n\n"


def read(text: str) -> tuple[Partition, ...] | None:
    return pbs_vnodes.parse_gpus(Result(0, text.encode(), b"", False))


def gpus(count: int, used: int | None = None, **more: object) -> dict[str, object]:
    return {"resources_available__ngpus": count, "resources_assigned__ngpus": used, **more}


def test_gpus_of_the_cluster() -> None:
    """Idle ones of vnodes that take jobs alone; what belongs to one queue is its own row, and comes after what does to none."""
    found = read(
        vnode("n1", **gpus(4, 1))
        + vnode("n2", **gpus(4, resources_available__ncpus=4))
        + vnode("n3", **gpus(4, 0, state="job-busy"))
        + vnode("n4", **gpus(4, 0, state="down,offline", comment=COMMENT))
        # Counted on another vnode.
        + vnode("n6[1]", resources_available__ngpus="@n6[0]", resources_assigned__ngpus="@n6[0]")
        # More than there are: a vnode whose number was lowered while jobs ran.
        + vnode("n5[0]", **gpus(1, 2))
        + vnode("slow1", **gpus(2, queue="slow"))
        + vnode("fast1", **gpus(8, queue="fast"))
        + vnode("cpu1")
    )
    fast, slow = Partition("fast", False, 8, 8, 64, None), Partition("slow", False, 2, 2, 64, None)
    assert found == (Partition("", True, 17, 7, 4, None), fast, slow)
    assert [pbs_vnodes.qsub_line(one) for one in found[:2]] == [
        "qsub -I -l select=1:ncpus=1:ngpus=1 -l walltime=01:00:00",
        "qsub -I -q fast -l select=1:ncpus=4:ngpus=1 -l walltime=01:00:00",
    ]
    # Where nobody waits for it, a queue's own is to be had sooner.
    busy = vnode("n1", **gpus(4, 4)) + vnode("fast1", **gpus(8, queue="fast"))
    assert [one.name for one in read(busy) or ()] == ["fast", ""]


@pytest.mark.parametrize("text", ["", vnode("n1"), vnode("n1", **gpus(0))])
def test_gpus_are_not_counted_here(text: str) -> None:
    """Not the same as none to be had: a site may count them under a name of its own."""
    assert read(text) is None


@pytest.mark.parametrize(
    "result",
    [
        Result(None, b"", b"", True),
        Result(None, vnode("n1", **gpus(1)).encode(), b"", False, True),
        Result(1, b"", b"pbsnodes: cannot connect to server vm, error=15010\n", False),
        Result(1, b"", b"", False),
        Result(0, b"", b"pbsnodes: No nodes found\n", False),
        Result(0, b"<html>\n", b"", False),
        Result(0, b"n1\n     what\n\n", b"", False),
        Result(0, vnode("n1", **{**gpus(1), "resources_available__ngpus": "many"}).encode(), b"", False),
        Result(0, vnode("n1", **gpus(1), resources_assigned__ncpus="0").replace("ngpus = 1", "ngpus = ²").encode(), b"", False),
    ],
)  # fmt: skip
def test_what_could_not_be_told(result: Result) -> None:
    with pytest.raises(CouldNotTell):
        pbs_vnodes.parse_gpus(result)


@given(st.text(max_size=300))
def test_any_answer(text: str) -> None:
    """An answer or CouldNotTell, whatever it is; counts that can be."""
    for one in (text, vnode("n1", **gpus(2)) + text, vnode("n1", **gpus(2), comment=text)):
        try:
            found = pbs_vnodes.parse_gpus(Result(0, one.encode("utf-8", "surrogatepass"), b"", False))
        except CouldNotTell:
            continue
        assert found is None or all(0 <= row.idle <= row.gpus for row in found)
