"""CUDA_VISIBLE_DEVICES, value by value: which GPUs a program sees, under which numbers, and what hides the others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handwash.model import Gpu
from handwash.survey import visible


def gpu(index: int, **changes: Any) -> Gpu:
    plain: dict[str, Any] = {"uuid": f"GPU-{index}000-abc", "name": "NVIDIA A100", "shared": False}
    plain = {**plain, "memory_used": None, "memory_total": None, "utilisation": None}
    return Gpu(index=index, **{**plain, **changes})


FOUR = tuple(gpu(index) for index in range(4))
MIG = (
    gpu(0, uuid="GPU-7"),
    gpu(1, uuid="MIG-aa", instance=(1, 0), sharing=("mig",)),
    gpu(1, uuid="MIG-ab", instance=(2, 0), sharing=("mig",)),
)


@pytest.mark.parametrize(
    ("value", "kind", "order", "rejected", "ignored"),
    [
        (None, "all", (0, 1, 2, 3), None, ()),
        ("", "none", (), None, ()),
        (" ", "none", (), None, ()),
        ("NoDevFiles", "no-dev-files", (), None, ()),
        ("0", "list", (0,), None, ()),
        ("2,0", "list", (2, 0), None, ()),
        (" 3 , 1 ", "list", (3, 1), None, ()),
        ("0,4,1", "list", (0,), "4", ("1",)),
        ("7", "list", (), "7", ()),
        ("1,-1,2", "list", (1,), "-1", ("2",)),
        ("-1", "list", (), "-1", ()),
        ("0,", "list", (0,), "", ()),
        ("0,x,1", "list", (0,), "x", ("1",)),
        ("0,²", "list", (0,), "²", ()),
        ("1,1,2", "repeated", (), "1", ("2",)),
        ("GPU-2", "list", (2,), None, ()),
        ("gpu-2", "list", (), "gpu-2", ()),
        ("GPU-3000-ABC,GPU-0", "list", (3, 0), None, ()),
        ("GPU-", "list", (), "GPU-", ()),  # all begin so
        ("GPU-9,0", "list", (), "GPU-9", ("0",)),
    ],
)
def test_each_value(
    value: str | None, kind: str, order: tuple[int, ...], rejected: str | None, ignored: tuple[str, ...]
) -> None:
    env = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    found = visible.read(env, FOUR)
    assert (found.kind, found.order, found.rejected, found.ignored) == (kind, order, rejected, ignored)
    assert found.certain
    told = visible.numbered(FOUR, found, env)
    assert [gpu.visible for gpu in told] == [order.index(n) if n in order else None for n in range(4)]


@pytest.mark.parametrize(
    ("value", "order"),
    [
        ("MIG-aa", (1,)),
        ("MIG-ab,GPU-7", (2, 0)),
        ("MIG-GPU-1000/2/0", (2,)),
        ("MIG-GPU-1000/9/0", ()),
        ("MIG-GPU-1000/x/y", ()),
        ("MIG-GPU-1000", ()),
        ("MIG-a", ()),
    ],
)
def test_mig_ids(value: str, order: tuple[int, ...]) -> None:
    found = visible.read({"CUDA_VISIBLE_DEVICES": value}, MIG)
    assert found.order == order and found.certain


def test_what_cuda_makes_of_its_own_order_is_not_guessed() -> None:
    mixed = (gpu(0), gpu(1, name="NVIDIA T4"))
    by_number = {"CUDA_VISIBLE_DEVICES": "1"}
    assert not visible.read(by_number, mixed).certain and not visible.read({}, mixed).certain
    assert [one.visible for one in visible.numbered(mixed, visible.read(by_number, mixed), by_number)] == [None, None]
    assert visible.read({**by_number, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, mixed).certain
    assert visible.read({"CUDA_VISIBLE_DEVICES": "GPU-1"}, mixed).certain
    assert not visible.read({"CUDA_VISIBLE_DEVICES": "0"}, MIG).certain


def test_other_vendors_have_no_number_there() -> None:
    both = (gpu(0, vendor="AMD"), gpu(0))
    found = visible.read({"CUDA_VISIBLE_DEVICES": "0"}, both)
    assert found.order == (1,)
    assert visible.read({}, both).order == (1,)


def test_the_gpus_of_a_job_with_shards_are_shared() -> None:
    env = {"CUDA_VISIBLE_DEVICES": "1", "SLURM_SHARDS_ON_NODE": "2"}
    told = visible.numbered(FOUR, visible.read(env, FOUR), env)
    assert [(gpu.shared, gpu.sharing) for gpu in told[:2]] == [(False, ()), (True, ("shard",))]


@given(
    st.text(max_size=40) | st.lists(st.sampled_from(["0", "1", "9", "-1", "GPU-1", "MIG-aa", "", " "])).map(",".join)
)
def test_no_value_upsets_it(value: str) -> None:
    found = visible.read({"CUDA_VISIBLE_DEVICES": value}, FOUR)
    assert len(set(found.order)) == len(found.order) and set(found.order) <= set(range(4))
    if found.rejected is None and found.kind == "list":
        assert len(found.order) == len(value.split(","))
