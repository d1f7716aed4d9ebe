"""Ascend cards by the table of `npu-smi info`: made-up tables in the layouts that it has, and what is not one of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handwash import world
from handwash.accelerators import ascend, device_files, nvml
from handwash.model import Gpu
from handwash.survey import gpus

MIB = 1024**2
RULE = "+" + "=" * 90 + "+"
PROCESSES = "| NPU     Chip   | Process id    | Process name        | Process memory(MB)      |"


def table(heading: str, *rows: str, processes: tuple[str, ...] = (), lists: str | None = PROCESSES) -> str:
    version = "| npu-smi 24.1.0        Version: 24.1.0                                   |"
    head = [version, "| NPU   Name   | Health   | Power(W)  Temp(C)   Hugepages-Usage(page)|", heading]
    listed = [] if lists is None else [lists, RULE, *processes]
    return "\n".join([RULE, *head, RULE, *(f"{row}\n{RULE}" for row in rows), *listed, RULE, ""])


ONE_CHIP = "| Chip                  | Bus-Id       | AICore(%)  Memory-Usage(MB)  HBM-Usage(MB)  |"
PHYSICAL = "| Chip  Phy-ID          | Bus-Id       | AICore(%)  Memory-Usage(MB)  HBM-Usage(MB)  |"
INFERENCE = "| Chip  Device          | Bus-Id       | AICore(%)  Memory-Usage(MB)                 |"


def files(*numbers: int) -> tuple[str, ...]:
    return tuple(f"/dev/davinci{number}" for number in numbers)


def seen(text: str, *numbers: int) -> tuple[Gpu, ...] | None:
    found = ascend.read(text, files(*numbers))
    return None if found is None else gpus.read(found)


def test_cards_of_one_chip() -> None:
    text = table(
        ONE_CHIP,
        "| 0     910B4  | OK    | 87.8    44      0    / 0  |\n| 0   | 0000:C1:00.0  | 37    0    / 0     2847 / 32768   |",
        "| 1     910B4  | Alarm | 87.8    44      0    / 0  |\n| 0   | 0000:C2:00.0  | 0     0    / 0     30711/ 32768   |",
        processes=(
            "| No running processes found in NPU 0                                           |",
            "| 1       0      | 4711          |                     | 30784                   |",
            "| 1       0      | 99            | python3             | 132                     |",
        ),
    )
    first, second = seen(text, 0, 1) or ()
    assert (first.index, first.name, first.vendor, first.device) == (0, "Ascend 910B4", "Ascend", "/dev/davinci0")
    assert (first.memory_used, first.memory_total, first.utilisation) == (2847 * MIB, 32768 * MIB, 0.37)
    assert (first.uses, first.uses_known, first.notes, first.minor) == ((), True, (), None)
    assert [(use.pid, use.memory, use.kind) for use in second.uses] == [
        (99, 132 * MIB, "compute"),
        (4711, 30784 * MIB, "compute"),
    ]
    assert second.memory_used == 30711 * MIB and "Alarm" in second.notes[0]


DUAL = (
    "| 2     Ascend910  | OK  | 182.0  36    0    / 0  |\n| 0     4   | 0000:9D:00.0  | 0    0    / 0    3402 / 65536  |",
    "| 2     Ascend910  | OK  | -      35    0    / 0  |\n| 1     5   | 0000:9F:00.0  | 100  0    / 0    3200 / 65536  |",
)


def test_cards_of_two_chips_go_by_the_number_of_their_file() -> None:
    newer = "| NPU   Chip  | Process id  | Process name  | Process memory(MB)  | Process id in container |"
    rows = ("| 2     1     | 7           | pytest        | 5175                | NA                      |",)
    first, second = seen(table(PHYSICAL, *DUAL, processes=rows, lists=newer), 4, 5) or ()
    assert [(gpu.index, gpu.device, gpu.name) for gpu in (first, second)] == [
        (4, "/dev/davinci4", "Ascend 910"),
        (5, "/dev/davinci5", "Ascend 910"),
    ]
    assert first.uses == () and [use.pid for use in second.uses] == [7] and second.utilisation == 1


def test_a_container_is_told_of_the_cards_that_it_has() -> None:
    (only,) = seen(table(PHYSICAL, *DUAL), 5) or ()
    assert only.device == "/dev/davinci5"


def test_cards_without_hbm() -> None:
    rows = (
        "| 0     310P3  | OK  | NA  51   996   / 996  |\n| 0     0  | 0000:01:00.0  | NA   3841 / 21527  |",
        "| 64    310P3  | OK  | NA  48   0     / 0    |\n| 0     1  | 0000:06:00.0  | 0    1764 / 21527  |",
    )
    first, second = seen(table(INFERENCE, *rows, lists=None), 0, 1) or ()
    assert (first.memory_used, first.memory_total, first.utilisation) == (3841 * MIB, 21527 * MIB, None)
    assert (second.index, second.utilisation, second.uses_known) == (1, 0, False)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", (0,)),
        ("npu-smi: command failed", (0,)),
        # A card whose number need not be that of its file.
        (table(ONE_CHIP, "| 3  310P3 | OK | 9 5 0 / 0 |\n| 0 | 0000:C1:00.0 | 0 0 / 0 1 / 2 |"), (0,)),
        (table(ONE_CHIP, "| 0  310P3 | OK | 9 5 0 / 0 |\n| 0 | 0000:C1:00.0 | 0 0 / 0 1 / 2 |"), (0, 1)),
        # Two rows for one file.
        (table(PHYSICAL, DUAL[0], DUAL[1].replace(" 5 ", " 4 ")), (4,)),
        (table(PHYSICAL, *DUAL), (0, 4)),
        # The layout of the newest cards, of which nothing is known for certain.
        (
            "| NPU ID | Name | Health | Power(W) |\n|  |  | Bus-Id | NPU Util(%) |\n"
            "| 0 | 950 | OK | 1 4 0 / 0 |\n|  |  | NA | 2 |",
            (0,),
        ),
    ],
)
def test_what_does_not_fit_the_files_is_not_read(text: str, numbers: tuple[int, ...]) -> None:
    assert seen(text, *numbers) is None


@given(st.text(alphabet="|0123 /NAChipPy-ID\n", max_size=200), st.sampled_from([ONE_CHIP, PHYSICAL, INFERENCE, ""]))
def test_no_table_upsets_it(text: str, heading: str) -> None:
    found = ascend.read(f"{heading}\n{text}", files(0))
    assert found is None or [card["device"] for card in found] == ["/dev/davinci0"]


@pytest.mark.parametrize(
    ("script", "known"),
    [("cat {table}", True), ("exit 1", False), ("exec sleep 60", False), ("kill -11 $$", False), (None, False)],
)
def test_the_tool_is_asked_where_there_is_one(
    script: str | None, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else, and where it fails or hangs, the device files alone count."""
    (tmp_path / "table").write_text(table(PHYSICAL, *DUAL))
    if script is not None:
        program = tmp_path / "npu-smi"
        program.write_text("#!/bin/sh\n" + script.format(table=tmp_path / "table"))
        program.chmod(0o755)
    monkeypatch.setattr(world, "env", {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    monkeypatch.setattr(ascend, "_PLACES", ())
    monkeypatch.setattr(ascend, "_PATIENCE", 1.0)
    monkeypatch.setattr(device_files, "present", lambda: (*files(4, 5), "/dev/davinci_manager"))
    monkeypatch.setattr(nvml, "library_present", lambda: False)
    told = gpus.read(gpus.look()["gpus"])
    assert [gpu.device for gpu in told] == list(files(4, 5))
    assert [gpu.uses_known for gpu in told] == [known] * 2
