"""Who is on each GPU: the driver's lists and the open device files, and what is said where they disagree."""

from __future__ import annotations

from typing import Any

import pytest

from handwash.model import Gpu, GpuUse, Holder
from handwash.survey import holders

GIB = 1024**3


def gpu(index: int = 0, *uses: GpuUse, **changes: Any) -> Gpu:
    plain: dict[str, Any] = {
        "uuid": f"GPU-{index}",
        "name": "NVIDIA A100",
        "memory_used": GIB,
        "memory_total": 80 * GIB,
        "utilisation": 0.5,
        "shared": False,
        "device": f"/dev/nvidia{index}",
    }
    return Gpu(index=index, uses=uses, **{**plain, **changes})


def row(pid: int, *devices: str, **changes: Any) -> dict[str, Any]:
    computes = "/dev/nvidia-uvm" in devices
    plain = {"pid": pid, "devices": devices, "computes": computes, "name": "train.py", "state": "S", "user": "alice"}
    return {**plain, **changes}


def join(
    gpus: tuple[Gpu, ...], *rows: dict[str, Any], missing: dict[int, tuple[str, str]] | None = None, host: bool = True
) -> Any:
    return holders.join(gpus, {one["pid"]: one for one in rows}, missing or {}, host)


UVM = "/dev/nvidia-uvm"
FILES = ("/dev/nvidia0", UVM)


@pytest.mark.parametrize(
    ("uses", "rows", "missing", "expected"),
    [
        # Both looks agree.
        ((GpuUse(7, GIB, "compute"),), [row(7, *FILES)], {}, Holder(7, GIB, "compute", "both", "", "alice")),
        # Another person's: the files may not be seen.
        ((GpuUse(7, GIB, "compute"),), [row(7, user="bob")], {}, Holder(7, GIB, "compute", "driver", "", "bob")),
        # In the driver's list, and no such process.
        ((GpuUse(7, GIB, "compute"),), [], {7: ("dead", "")}, Holder(7, GIB, "compute", "driver", "dead")),
        # Another person's behind hidepid.
        (
            (GpuUse(7, GIB, "compute"),),
            [],
            {7: ("hidden", "bob")},
            Holder(7, GIB, "compute", "driver", "hidden", "bob"),
        ),
        # A zombie holds no GPU.
        (
            (GpuUse(7, None, "compute"),),
            [row(7, state="Z")],
            {},
            Holder(7, None, "compute", "driver", "zombie", "alice"),
        ),
        # Device open and not in the list: a data loader that its parent has left.
        ((), [row(7, *FILES)], {}, Holder(7, None, "", "files", "unlisted", "alice")),
        # nvidia-smi, nvitop.
        ((), [row(7, "/dev/nvidia0", "/dev/nvidiactl")], {}, Holder(7, None, "", "files", "monitor", "alice")),
        # The multi-process service: its clients, and itself.
        ((GpuUse(7, GIB, "mps"),), [row(7, *FILES)], {}, Holder(7, GIB, "mps", "both", "", "alice")),
        (
            (GpuUse(7, GIB, "compute"),),
            [row(7, name="nvidia-cuda-mps-server", user="root")],
            {},
            Holder(7, GIB, "mps-server", "driver", "", "root"),
        ),
    ],
)
def test_each_agreement_and_disagreement_has_its_word(
    uses: tuple[GpuUse, ...], rows: list[dict[str, Any]], missing: dict[int, tuple[str, str]], expected: Holder
) -> None:
    (told,) = join((gpu(0, *uses),), *rows, missing=missing)
    assert told.holders == (expected,)


def test_without_the_driver_s_word_no_file_disagrees_with_it() -> None:
    (told,) = join((gpu(uses_known=False),), row(7, *FILES))
    assert told.holders == (Holder(7, None, "", "files", "", "alice"),)


def test_a_program_opens_the_files_of_all_gpus_and_computes_on_one() -> None:
    first, second = join((gpu(0, GpuUse(7, GIB, "compute")), gpu(1)), row(7, *FILES, "/dev/nvidia1"))
    assert first.holders[0].by == "both" and first.holders[0].word == ""
    assert second.holders == (Holder(7, None, "", "files", "elsewhere", "alice"),)


def test_in_a_container_the_files_decide() -> None:
    # The number 7 of the driver's list is the host's: here it is somebody else, who holds nothing.
    (told,) = join((gpu(0, GpuUse(7, GIB, "compute")),), row(7), row(8, *FILES), host=False)
    assert told.holders == (
        Holder(7, GIB, "compute", "driver", "foreign"),
        Holder(8, None, "", "files", "unlisted", "alice"),
    )


def test_of_several_mig_instances_the_file_does_not_say_which() -> None:
    use = GpuUse(7, GIB, "compute", (1, 0))
    one, two = gpu(0, use, instance=(1, 0)), gpu(0, instance=(2, 0))
    first, second = join((one, two), row(7, *FILES), row(8, *FILES))
    assert first.holders == (Holder(7, GIB, "compute", "both", "", "alice"),) and second.holders == ()
    (alone,) = join((one,), row(7, *FILES), row(8, *FILES))
    assert [holder.pid for holder in alone.holders] == [7, 8]


def test_the_service_s_server_makes_the_gpu_shared() -> None:
    (told,) = join((gpu(0, GpuUse(7, GIB, "compute")),), row(7, name="nvidia-cuda-mps-server"))
    assert told.shared and told.sharing == ("mps",)


WEDGED: dict[str, Any] = {"utilisation": 1.0, "memory_used": 0}


@pytest.mark.parametrize(
    ("wedged", "uses", "changes", "rows"),
    [
        (True, (), {}, []),
        (True, (), {"memory_used": 4 << 20}, []),
        (True, (GpuUse(7, 0, "compute"),), {}, []),  # the dead do no work
        (True, (), {}, [row(7, "/dev/nvidia0")]),  # nor does a monitor
        (False, (), {"utilisation": 0.5}, []),
        (False, (), {"utilisation": None}, []),
        (False, (), {"memory_used": GIB}, []),
        (False, (), {"memory_used": None}, []),
        (False, (), {"uses_known": False}, []),
        (False, (), {}, [row(7, *FILES)]),
        (False, (GpuUse(7, 0, "compute"),), {}, [row(7)]),
    ],
)
def test_busy_with_nothing_is_wedged(
    wedged: bool, uses: tuple[GpuUse, ...], changes: dict[str, Any], rows: list[dict[str, Any]]
) -> None:
    (told,) = join((gpu(0, *uses, **{**WEDGED, **changes}),), *rows)
    assert ("wedged" in told.trouble) == wedged
    assert any("wedged" in note for note in told.notes) == wedged


def test_126_workers_are_found_by_their_files_though_the_driver_lists_the_dead() -> None:
    every = tuple(f"/dev/nvidia{n}" for n in range(8))
    dead = tuple(GpuUse(pid, GIB, "compute") for pid in range(100, 108))
    told = join(
        tuple(gpu(n, dead[n]) for n in range(8)),
        *(row(pid, *every, UVM) for pid in range(1000, 1126)),
        missing=dict.fromkeys(range(100, 108), ("dead", "")),
    )
    for one in told:
        assert [holder.pid for holder in one.holders if holder.word == "unlisted"] == list(range(1000, 1126))
        assert [holder.word for holder in one.holders if holder.by == "driver"] == ["dead"]
