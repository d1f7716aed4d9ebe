"""The real nvidia-ml-py on the fake driver library: each breakage of the driver, and what handwash makes of it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from tests.gpu.asking import ask, run_code, seen
from tests.testbed.driver.fake import GIB, V1_LISTS, V2_LISTS, V3_LISTS, FakeDriver

from handwash.model import GpuUse

ME = os.getpid()


def test_it_tells_each_gpu_with_memory_use_and_processes(fake_driver: FakeDriver) -> None:
    fake_driver.gpus(2).gpu(1, uuid="GPU-1", name="NVIDIA H200", minor=7, utilisation=37, memory_reserved=GIB)
    fake_driver.process(1, ME, 3 * GIB)
    first, second = seen(fake_driver.env())
    assert (first.index, first.minor, first.uses, first.uses_known, first.memory_used) == (0, 0, (), True, 0)
    assert (second.index, second.uuid, second.name) == (1, "GPU-1", "NVIDIA H200")
    assert (second.minor, second.device) == (7, "/dev/nvidia7")
    assert (second.memory_used, second.memory_total) == (3 * GIB, 80 * GIB)  # without what the driver keeps for itself
    assert second.utilisation == 0.37
    assert second.uses == (GpuUse(ME, 3 * GIB, "compute"),)
    assert not second.shared and second.notes == ()


def test_no_gpu_is_a_known_answer(fake_driver: FakeDriver) -> None:
    assert seen(fake_driver.env()) == ()


def test_the_three_lists_become_one_row_a_process(fake_driver: FakeDriver) -> None:
    fake_driver.gpus(2)
    fake_driver.process(0, 11, GIB, ghost=True).process(0, 11, 2 * GIB, kind="graphics", ghost=True)
    fake_driver.process(0, 12, "unavailable", kind="graphics", ghost=True)
    fake_driver.process(1, 11, "unavailable", ghost=True).process(1, 11, GIB, kind="graphics", ghost=True)
    first, second = seen(fake_driver.env())
    assert first.uses == (GpuUse(11, 2 * GIB, "compute"), GpuUse(12, None, "graphics"))
    assert second.uses == (GpuUse(11, GIB, "compute"),)


def test_a_client_of_the_multi_process_service_makes_the_gpu_shared(fake_driver: FakeDriver) -> None:
    fake_driver.gpus(2).process(0, 11, GIB, ghost=True).process(0, 11, GIB, kind="mps", ghost=True)
    first, second = seen(fake_driver.env())
    assert first.uses == (GpuUse(11, GIB, "mps"),)
    assert first.shared and first.sharing == ("mps",) and not second.shared


def test_mig_instances_are_gpus_of_their_own_shared_and_not_idle(fake_driver: FakeDriver) -> None:
    fake_driver.gpus(2, utilisation=50).mig(1, gi=3, memory_used=GIB, uuid="MIG-a").mig(1, gi=5, ci=1, uuid="MIG-b")
    fake_driver.process(1, ME, GIB, gi=3, ci=0).process(1, ME + 1, GIB, kind="mps", gi=5, ci=1, ghost=True)
    whole, first, second = seen(fake_driver.env())
    assert whole.utilisation == 0.5 and whole.instance is None and not whole.shared
    assert [(gpu.index, gpu.uuid, gpu.instance, gpu.device) for gpu in (first, second)] == [
        (1, "MIG-a", (3, 0), "/dev/nvidia1"),
        (1, "MIG-b", (5, 1), "/dev/nvidia1"),
    ]
    assert first.name.endswith("MIG 1g.10gb") and first.memory_used == GIB and first.memory_total == 10200547328
    assert first.uses == (GpuUse(ME, GIB, "compute", (3, 0)),) and second.uses == (GpuUse(ME + 1, GIB, "mps", (5, 1)),)
    assert first.sharing == ("mig",) and second.sharing == ("mig", "mps")
    assert all(gpu.utilisation is None and gpu.shared and gpu.uses_known for gpu in (first, second))


def test_a_process_on_an_instance_that_is_not_shown_stays_with_the_gpu(fake_driver: FakeDriver) -> None:
    fake_driver.gpus(1).mig(0, gi=3).process(0, ME, GIB, gi=4, ci=1)
    whole, instance = seen(fake_driver.env())
    assert whole.uses == (GpuUse(ME, GIB, "compute", (4, 1)),) and whole.instance is None
    assert instance.uses == () and instance.instance == (3, 0)


def test_a_gpu_with_mig_on_and_no_instance_is_shown_itself(fake_driver: FakeDriver) -> None:
    fake_driver.gpus(1, mig=1, utilisation=50)
    (second,) = seen(fake_driver.env())
    assert second.utilisation is None and second.shared and second.sharing == ("mig",)


def test_a_dead_pid_stays_in_the_answer(fake_driver: FakeDriver) -> None:
    fake_driver.gpus(1).process(0, 4194303, 2 * GIB, ghost=True)
    assert [use.pid for gpu in seen(fake_driver.env()) for use in gpu.uses] == [4194303]


def test_two_hundred_processes_on_one_gpu(fake_driver: FakeDriver) -> None:
    fake_driver.gpus(1)
    for pid in range(1000, 1200):
        fake_driver.process(0, pid, 2**20, ghost=True)
    (gpu,) = seen(fake_driver.env())
    assert [use.pid for use in gpu.uses] == list(range(1000, 1200))
    assert gpu.memory_used == 200 * 2**20


# ---- drivers of other ages


def test_a_driver_without_the_newer_calls_is_asked_by_the_older(fake_driver: FakeDriver) -> None:
    # Before driver 510: no `_v3` lists, no MemoryInfo_v2.
    fake_driver.driver("470.223.02").missing(*V3_LISTS, "nvmlDeviceGetMemoryInfo_v2")
    fake_driver.gpus(1, memory_reserved=GIB).process(0, ME, GIB)
    (gpu,) = seen(fake_driver.env())
    assert gpu.uses == (GpuUse(ME, GIB, "compute"),) and gpu.uses_known
    assert gpu.memory_used == 2 * GIB
    assert gpu.notes == ()


def test_a_driver_from_before_mig_is_asked_by_the_oldest(fake_driver: FakeDriver) -> None:
    # Before driver 450: rows of pid and memory alone.
    fake_driver.driver("418.87.00").missing(*V3_LISTS, *V2_LISTS, "nvmlDeviceGetMigMode", "nvmlDeviceGetMemoryInfo_v2")
    fake_driver.gpus(1).process(0, ME, GIB).process(0, 1, "unavailable").process(0, ME, GIB, kind="graphics")
    (gpu,) = seen(fake_driver.env())
    assert gpu.uses == (GpuUse(1, None, "compute"), GpuUse(ME, GIB, "compute")) and gpu.uses_known


def test_a_driver_without_any_known_list_says_nothing_about_processes(fake_driver: FakeDriver) -> None:
    fake_driver.missing(*V3_LISTS, *V2_LISTS, *V1_LISTS)
    fake_driver.gpus(1, memory_used=GIB).process(0, ME, GIB)
    (gpu,) = seen(fake_driver.env())
    assert (gpu.uses, gpu.uses_known, gpu.shared) == ((), False, False)
    assert gpu.memory_used == GIB


def test_drivers_with_another_layout_of_the_list_are_named_and_read_right(fake_driver: FakeDriver) -> None:
    fake_driver.driver("535.54.03").gpus(1)
    for pid in (11, 12, 13):
        fake_driver.process(0, pid, GIB, ghost=True)
    (gpu,) = seen(fake_driver.env())
    assert [use.pid for use in gpu.uses] == [11, 12, 13]
    assert len(gpu.notes) == 1 and "535.54.03" in gpu.notes[0]


@pytest.mark.parametrize("version", ["535.42.01", "535.86.05", "550.54.15", "545.54.03", "", "535", "535.x"])
def test_other_drivers_are_not_blamed_for_that(fake_driver: FakeDriver, version: str) -> None:
    from handwash.accelerators.nvml_lists import has_wrong_lists

    assert not has_wrong_lists(version)


# ---- trouble with one call or one GPU


def test_a_list_that_grows_between_the_two_calls_is_asked_again(fake_driver: FakeDriver) -> None:
    fake_driver.gpus(1).process(0, ME, GIB).grow(V3_LISTS[0], count=3)
    (gpu,) = seen(fake_driver.env())
    assert gpu.uses == (GpuUse(ME, GIB, "compute"),)


def test_a_list_that_never_stops_growing_is_unknown_on_that_gpu_alone(fake_driver: FakeDriver) -> None:
    fake_driver.gpus(2, memory_used=GIB).process(0, ME).process(1, ME).grow(V3_LISTS[0], gpu=0, count=99)
    first, second = seen(fake_driver.env())
    assert (first.uses, first.uses_known) == ((), False) and "Insufficient Size" in first.notes[0]
    assert first.memory_used == GIB
    assert second.uses_known and len(second.uses) == 1 and second.notes == ()


@pytest.mark.parametrize("good_calls", range(12))
def test_a_gpu_lost_between_two_calls_loses_its_values_and_no_others(fake_driver: FakeDriver, good_calls: int) -> None:
    fake_driver.gpus(3, utilisation=10).process(1, ME).process(2, ME).fault("*", "GPU_IS_LOST", gpu=1, after=good_calls)
    first, second, third = seen(fake_driver.env())
    assert (second.memory_used, second.memory_total, second.utilisation) == (None, None, None)
    assert (second.uses, second.uses_known) == ((), False)
    assert len(second.notes) == 1 and "lost" in second.notes[0] and "1" in second.notes[0]
    for other in (first, third):
        assert other.utilisation == 0.1 and other.memory_total == 80 * GIB and other.notes == ()
    assert len(third.uses) == 1


@pytest.mark.parametrize(
    ("symbol", "field", "value"),
    [
        ("nvmlDeviceGetName", "name", ""),
        ("nvmlDeviceGetUUID", "uuid", ""),
        ("nvmlDeviceGetMinorNumber", "minor", None),
        ("nvmlDeviceGetUtilizationRates", "utilisation", None),
        ("nvmlDeviceGetMigMode", "shared", False),
        (V3_LISTS[0], "uses_known", False),
        (V3_LISTS[1], "uses_known", True),
        (V3_LISTS[2], "uses_known", True),
    ],
)
@pytest.mark.parametrize(("code", "notes"), [("NOT_SUPPORTED", 0), ("NO_PERMISSION", 1), ("UNKNOWN", 1), (77, 1)])
def test_a_call_that_fails_costs_its_own_value(
    fake_driver: FakeDriver, symbol: str, field: str, value: object, code: str | int, notes: int
) -> None:
    fake_driver.gpus(2, utilisation=10).process(0, ME).process(1, ME).fault(symbol, code, gpu=0)
    first, second = seen(fake_driver.env())
    assert getattr(first, field) == value
    assert len(first.notes) == notes
    assert first.memory_used == GIB
    assert second.name and second.utilisation == 0.1 and len(second.uses) == 1 and second.notes == ()


def test_memory_that_cannot_be_told_is_none_not_nought(fake_driver: FakeDriver) -> None:
    fake_driver.gpus(1).fault("nvmlDeviceGetMemoryInfo_v2", "NOT_SUPPORTED").fault("nvmlDeviceGetMemoryInfo", "UNKNOWN")
    (gpu,) = seen(fake_driver.env())
    assert (gpu.memory_used, gpu.memory_total) == (None, None)


def test_nonsense_is_not_passed_on(fake_driver: FakeDriver) -> None:
    fake_driver.gpus(1, utilisation=250, memory_used=90 * GIB, name="\udcff\udcfe")
    (gpu,) = seen(fake_driver.env())
    assert (gpu.utilisation, gpu.memory_used, gpu.memory_total, gpu.name) == (None, None, 80 * GIB, "")
    assert "makes no sense" in gpu.notes[0]


# ---- how busy, over the driver's samples


def test_how_busy_is_the_mean_over_the_samples(fake_driver: FakeDriver) -> None:
    fake_driver.gpus(2, utilisation=99).gpu(0, samples="0,0,100,60").gpu(1, samples=",".join(["0"] * 120))
    first, second = seen(fake_driver.env())
    assert (first.utilisation, first.utilisation_max) == (0.4, 1.0)
    assert first.utilisation_over_s == pytest.approx(4 / 6, abs=0.01)
    assert (second.utilisation, second.utilisation_max) == (0, 0)
    assert second.utilisation_over_s == pytest.approx(20, abs=0.1)


@pytest.mark.parametrize("symbol_missing", [True, False])
def test_without_samples_it_is_the_instant(fake_driver: FakeDriver, symbol_missing: bool) -> None:
    fake_driver.gpus(1, utilisation=37)
    if symbol_missing:
        fake_driver.missing("nvmlDeviceGetSamples")
    (gpu,) = seen(fake_driver.env())
    assert (gpu.utilisation, gpu.utilisation_max, gpu.utilisation_over_s) == (0.37, 0.37, None)
    assert gpu.notes == ()


def test_samples_that_make_no_sense_are_left_out(fake_driver: FakeDriver) -> None:
    fake_driver.gpus(1, samples="50,4000000000,70")
    (gpu,) = seen(fake_driver.env())
    assert gpu.utilisation == pytest.approx(0.6) and gpu.utilisation_max == 0.7


def test_samples_from_before_a_long_sleep_are_left_out(fake_driver: FakeDriver) -> None:
    fake_driver.gpus(1, utilisation=37, samples="100,100,100")
    for seconds in (-3600, 3600, 8):
        (gpu,) = seen(fake_driver.env(), before=f"import time; world.now = lambda: time.time() + {seconds}")
        assert (gpu.utilisation, gpu.utilisation_over_s) == (0.37, None)


def test_a_gpu_that_is_woken_by_the_question_is_not_called_busy(fake_driver: FakeDriver) -> None:
    # Without persistence mode and with nobody on it, the driver starts the GPU up and counts that.
    fake_driver.gpus(3, utilisation=100, persistence=0).gpu(1, persistence=1).process(2, ME)
    woken, kept, used = seen(fake_driver.env())
    assert (woken.utilisation, kept.utilisation, used.utilisation) == (None, 1.0, 1.0)


# ---- no answer at all

REASONS = {
    "DRIVER_NOT_LOADED": "not loaded",
    "LIB_RM_VERSION_MISMATCH": "has not been rebooted since the driver was updated",
    "LIBRARY_NOT_FOUND": "cannot be loaded",
    "NO_PERMISSION": "No permission",
    "FUNCTION_NOT_FOUND": "too old",
    "GPU_IS_LOST": "lost a GPU",
    "UNKNOWN": "Unknown Error",
}


@pytest.mark.parametrize("code", REASONS)
@pytest.mark.parametrize("symbol", ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2"])
def test_each_failure_of_the_driver_has_its_own_reason(fake_driver: FakeDriver, symbol: str, code: str) -> None:
    fake_driver.gpus(1).fault(symbol, code)
    why = ask(fake_driver.env())["unknown"]
    assert [name for name, words in REASONS.items() if words in why] == [code]


def test_a_missing_library_is_named(tmp_path: Path) -> None:
    if any(Path(folder, "libnvidia-ml.so.1").exists() for folder in ("/usr/lib64", "/usr/lib/x86_64-linux-gnu")):
        pytest.skip("this machine has the NVIDIA driver's library")
    assert "is missing" in ask({})["unknown"]
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    assert "cannot be loaded" in ask({"LD_LIBRARY_PATH": str(tmp_path)})["unknown"]


def test_a_driver_that_never_answers_is_left_at_the_deadline(fake_driver: FakeDriver) -> None:
    fake_driver.gpus(1).delay("nvmlInitWithFlags", "forever")
    begin = time.monotonic()
    answer = ask(fake_driver.env(), deadline=0.5)
    assert "does not answer" in answer["unknown"] and answer["cause"] == "driver-hangs"
    assert time.monotonic() - begin < 5


def test_a_driver_that_hangs_in_the_middle_is_left_too(fake_driver: FakeDriver) -> None:
    fake_driver.gpus(3, memory_base=GIB).delay("nvmlDeviceGetUtilizationRates", "forever", gpu=1)
    answer = ask(fake_driver.env(), deadline=2)
    assert "does not answer" in answer["unknown"] and answer["cause"] == "driver-hangs"
    # Those that had answered before are told.
    assert [(gpu["index"], gpu["memory_used"]) for gpu in answer["gpus"]] == [(0, GIB)]


def test_a_slow_driver_within_the_deadline_is_heard(fake_driver: FakeDriver) -> None:
    fake_driver.gpus(1).delay("nvmlInitWithFlags", 0.2)
    assert len(seen(fake_driver.env())) == 1


def test_a_library_that_crashes_is_no_answer(fake_driver: FakeDriver) -> None:
    fake_driver.gpus(1).crash(V3_LISTS[0])
    assert "crashed" in ask(fake_driver.env())["unknown"]


# ---- nvidia-ml-py itself

# PyPI's `pynvml` 11 is a folder of that name; the much older nvidia-ml-py3 is a file without the calls of today.
WRONG = "def nvmlInit(): raise SystemError('the wrong package')\n"


def real_bindings() -> Path:
    import importlib.util

    spec = importlib.util.find_spec("pynvml")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin)


def test_a_package_that_hides_it_is_passed_by(fake_driver: FakeDriver, tmp_path: Path) -> None:
    (tmp_path / "pynvml").mkdir()
    (tmp_path / "pynvml" / "__init__.py").write_text(WRONG)
    shutil.copy(real_bindings(), tmp_path / "pynvml.py")
    fake_driver.gpus(1)
    assert len(seen(fake_driver.env(), before=f"sys.path.insert(0, {str(tmp_path)!r})")) == 1


@pytest.mark.parametrize("place", ["pynvml/__init__.py", "pynvml.py"])
@pytest.mark.parametrize("content", [WRONG, "import a_module_that_is_nowhere_\n", "print("])
def test_a_wrong_package_is_named(fake_driver: FakeDriver, tmp_path: Path, place: str, content: str) -> None:
    wrong = tmp_path / place
    wrong.parent.mkdir(exist_ok=True)
    wrong.write_text(content)
    fake_driver.gpus(1)
    before = f"sys.path.insert(0, {str(tmp_path)!r}); bindings._own_site_packages = lambda: '/nowhere'"
    why = ask(fake_driver.env(), before=before)["unknown"]
    assert "hides nvidia-ml-py" in why
    if content == WRONG:
        assert str(wrong) in why


def test_a_missing_package_is_named(fake_driver: FakeDriver) -> None:
    before = (
        "bindings._own_site_packages = lambda: '/nowhere'; world.add_site_packages = lambda: None\n"
        # An installed handwash lies in the same folder as the package.
        "sys.path[:] = [folder for folder in sys.path if not os.path.exists(folder + '/pynvml.py')]"
    )
    assert "nvidia-ml-py is missing" in ask(fake_driver.env(), before=before)["unknown"]


def test_the_light_import_gives_the_same_module_as_the_plain_one() -> None:
    names = "print(sorted(name for name in dir(module) if name.startswith(('nvml', 'NVML'))))"
    light = run_code(f"module = bindings.load()\n{names}")
    plain = run_code(f"sys.path.append({str(real_bindings().parent)!r})\nimport pynvml as module\n{names}")
    assert light == plain


def test_the_light_import_leaves_no_stand_in_behind() -> None:
    out = run_code(
        """
module = bindings.load()
assert "subprocess" not in sys.modules and "functools" not in sys.modules and "string" not in sys.modules
assert module.find_library("c")
assert module.nvmlDeviceGetCount.__name__ == "nvmlDeviceGetCount"
assert str(module.NVMLError_GpuIsLost()) == "GPU is lost"
import ctypes.util, functools, string
assert functools.partial and string.Template and ctypes.util.find_library
print("fine")
"""
    )
    assert out == "fine\n"


def test_a_stand_in_fetches_what_it_was_not_given() -> None:
    out = run_code(
        """
name, module = bindings._stand_in("string", capwords=bindings._capwords)
from string import Template, ascii_lowercase
print(Template.__module__, ascii_lowercase, sys.modules["string"] is module)
"""
    )
    assert out == "string abcdefghijklmnopqrstuvwxyz False\n"


def test_the_library_is_found_without_loading_it(tmp_path: Path) -> None:
    from handwash.accelerators import nvml

    cache = tmp_path / "ld.so.cache"
    assert not nvml.library_present(str(cache), ())
    cache.write_bytes(b"glibc-ld.so.cache1.1\0libc.so.6\0/lib/libc.so.6\0")
    assert not nvml.library_present(str(cache), ())
    cache.write_bytes(cache.read_bytes() + b"libnvidia-ml.so.1\0/lib/libnvidia-ml.so.1\0")
    assert nvml.library_present(str(cache), ())
    (tmp_path / "libnvidia-ml.so.1").touch()
    assert nvml.library_present("/nowhere", (str(tmp_path),))


@pytest.mark.parametrize("form", ["{here}", "/nowhere:{here}", "{here}:", "/nowhere;{here}"])
def test_the_library_is_found_by_the_loader_s_own_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    from handwash.accelerators import nvml

    monkeypatch.setenv("LD_LIBRARY_PATH", form.format(here=tmp_path))
    assert not nvml.library_present("/nowhere", ())
    (tmp_path / "libnvidia-ml.so.1").touch()
    assert nvml.library_present("/nowhere", ())
