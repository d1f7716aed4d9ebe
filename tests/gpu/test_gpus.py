"""Which of the two looks is taken, and how a look's plain data becomes records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handwash.accelerators import device_files, nvml, nvml_lists
from handwash.model import Gpu, GpuUse
from handwash.survey import gpus

NVIDIA = ("/dev/nvidia0", "/dev/nvidia3", "/dev/nvidia-uvm", "/dev/nvidiactl")


NOT_LOADED = {"why": "The NVIDIA driver is not loaded on this node.", "cause": "driver-not-loaded"}


class World:
    """A node: which files, which library, which hardware, and what the driver answers."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.files: tuple[str, ...] = ()
        self.library = False
        self.hardware: bool | None = False
        self.answer: dict[str, Any] | Exception = AssertionError("the driver was asked")
        patch.setattr(device_files, "present", lambda: self.files)
        patch.setattr(device_files, "nvidia_hardware", lambda: self.hardware)
        patch.setattr(nvml, "library_present", lambda: self.library)
        patch.setattr(nvml, "look", self.look)

    def look(self) -> dict[str, Any]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return {**gpus.NOTHING, **self.answer}


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_neither_library_nor_file_is_a_known_nothing(node: World) -> None:
    assert gpus.nothing_here()
    assert gpus.read(gpus.look()["gpus"]) == ()


@pytest.mark.parametrize(("files", "library"), [(NVIDIA, False), ((), True), (("/dev/davinci0",), False)])
def test_a_library_or_a_file_asks_for_a_look(node: World, files: tuple[str, ...], library: bool) -> None:
    node.files, node.library = files, library
    assert not gpus.nothing_here()


def test_files_without_a_library(node: World) -> None:
    node.files = NVIDIA
    found = gpus.read(gpus.look()["gpus"])
    assert [(gpu.index, gpu.minor, gpu.device) for gpu in found] == [(0, 0, "/dev/nvidia0"), (3, 3, "/dev/nvidia3")]
    assert [(gpu.memory_used, gpu.utilisation, gpu.uses_known) for gpu in found] == [(None, None, False)] * 2


def test_other_vendors_are_known_by_their_files(node: World) -> None:
    node.files = ("/dev/davinci0", "/dev/davinci1", "/dev/davinci_manager")
    assert [(gpu.index, gpu.minor, gpu.device) for gpu in gpus.read(gpus.look()["gpus"])] == [
        (0, None, "/dev/davinci0"),
        (1, None, "/dev/davinci1"),
    ]
    node.files = ("/dev/dri/renderD128", "/dev/dri/renderD129", "/dev/kfd")
    assert [(gpu.index, gpu.device) for gpu in gpus.read(gpus.look()["gpus"])] == [
        (0, "/dev/dri/renderD128"),
        (1, "/dev/dri/renderD129"),
    ]


def test_the_driver_s_word_goes_before_the_files(node: World) -> None:
    node.files, node.library, node.answer = NVIDIA, True, {"driver": "550.54.15"}
    assert gpus.look() == {"driver": "550.54.15", "gpus": [], "why": None, "cause": ""}


def test_no_driver_and_no_hardware_is_a_login_node_with_the_cluster_s_image(node: World) -> None:
    node.library, node.answer = True, NOT_LOADED
    assert gpus.read(gpus.look()["gpus"]) == ()


@pytest.mark.parametrize(("files", "hardware"), [(NVIDIA, False), ((), True), ((), None)])
def test_no_driver_where_one_should_be_is_no_answer(node: World, files: tuple[str, ...], hardware: bool | None) -> None:
    node.library, node.files, node.hardware, node.answer = True, files, hardware, NOT_LOADED
    answer = gpus.look()
    assert answer["cause"] == "driver-not-loaded" and answer["why"]
    # What is there by its device file is told all the same.
    assert [gpu["device"] for gpu in answer["gpus"]] == [path for path in files if path[-1].isdigit()]


def test_any_other_failure_is_no_answer(node: World) -> None:
    node.library, node.answer = True, {"why": "mismatch", "cause": "driver-mismatch"}
    assert gpus.look()["why"] == "mismatch"


def test_those_that_have_answered_are_not_told_twice(node: World) -> None:
    answered = gpus.by_device_file(("/dev/nvidia3",))
    node.library, node.files = True, NVIDIA
    node.answer = {"gpus": answered, "why": "hangs", "cause": "driver-hangs"}
    assert [gpu["device"] for gpu in gpus.look()["gpus"]] == ["/dev/nvidia3", "/dev/nvidia0"]


def test_indices_follow_the_minor_numbers_not_the_order() -> None:
    def gpu(index: int, minor: int | None) -> Gpu:
        device = "" if minor is None else f"/dev/nvidia{minor}"
        return Gpu(index, "", "", None, None, None, False, minor, device=device)

    found = (gpu(0, 3), gpu(1, 2), gpu(2, None))
    assert gpus.indices_of(("/dev/nvidia2", "/dev/nvidia3", "/dev/nvidia-uvm"), found) == (0, 1)
    assert gpus.indices_of(("/dev/nvidia2",), found) == (1,)
    assert gpus.indices_of(("/dev/nvidia7", "/dev/nvidiactl"), found) == ()
    assert gpus.indices_of((), found) == ()
    assert gpus.indices_of(("/dev/nvidia2",), ()) == ()


NOT_AVAILABLE, NOT_MIG = 2**64 - 1, 0xFFFFFFFF
rows = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.sampled_from([None, 0, 1, 2**30, NOT_AVAILABLE]),
        st.sampled_from(["mps", "compute", "graphics"]),
        st.sampled_from([0, 1, NOT_MIG]),
        st.sampled_from([0, 1]),
    )
)


@given(rows)
def test_joining_loses_no_process_and_doubles_none(listed: list[tuple[int, int | None, str, int, int]]) -> None:
    joined = nvml_lists.join(listed)
    assert {row[0] for row in joined} == {row[0] for row in listed}
    assert len({(row[0], row[3]) for row in joined}) == len(joined)
    for pid, memory, kind, instance in joined:
        same = [row for row in listed if row[0] == pid and (None if row[3] == NOT_MIG else row[3:]) == instance]
        told = [row[1] for row in same if row[1] is not None and row[1] != NOT_AVAILABLE]
        assert memory == (max(told) if told else None)
        assert kind == same[0][2]


def test_plain_data_becomes_records() -> None:
    plain = gpus.by_device_file(("/dev/nvidia1",))
    plain[0].update(uses=[(7, None, "mps", None), (8, 1, "compute", [1, 0])], notes=["a note"])
    (gpu,) = gpus.read(plain)
    assert gpu.uses == (GpuUse(7, None, "mps"), GpuUse(8, 1, "compute", (1, 0)))
    assert gpu.notes == ("a note",)
