"""AMD's and Hygon's GPUs, on a made-up /sys with the folders and files of the kernel's compute driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from handwash.accelerators import device_files, kfd, nvml
from handwash.survey import gpus

GIB = 1024**3
PROPERTIES = "cpu_cores_count 0\nsimd_count 440\nvendor_id {vendor}\ndrm_render_minor {minor}\nunique_id {unique}\n"


class Sys:
    """A /sys to write into."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kfd = root / "class/kfd/kfd"

    def put(self, path: str, content: object) -> None:
        file = self.root / "class" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")

    def gpu(self, node: int, gpu_id: int, minor: int = 128, vendor: int = 0x1002, **drm: object) -> None:
        self.put(f"kfd/kfd/topology/nodes/{node}/gpu_id", gpu_id)
        properties = PROPERTIES.format(vendor=vendor, minor=minor, unique=0x1234 + node)
        self.put(f"kfd/kfd/topology/nodes/{node}/properties", properties)
        for name, content in drm.items():
            self.put(f"drm/renderD{minor}/device/{name}", content)

    def process(self, pid: int, queues: tuple[int, ...] = (), **vram: int) -> None:
        for name, amount in vram.items():
            self.put(f"kfd/kfd/proc/{pid}/{name}", amount)
        for number, gpu_id in enumerate(queues):
            self.put(f"kfd/kfd/proc/{pid}/queues/{number}/gpuid", gpu_id)


@pytest.fixture
def sysfs(tmp_path: Path) -> Sys:
    made = Sys(tmp_path)
    made.put("kfd/kfd/topology/nodes/0/gpu_id", 0)
    made.put("kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 64")
    made.gpu(
        1,
        15209,
        128,
        mem_info_vram_used=3 * GIB,
        mem_info_vram_total=64 * GIB,
        gpu_busy_percent=37,
        product_name="MI300X",
    )
    made.gpu(10, 62, 130, vendor=0x1D94)
    made.gpu(2, 17126, 129, mem_info_vram_used=0, mem_info_vram_total=64 * GIB, gpu_busy_percent=0)
    (tmp_path / "class/kfd/kfd/proc").mkdir()
    return made


def test_each_gpu_with_memory_and_use(sysfs: Sys) -> None:
    first, second, third = gpus.read(kfd.look(str(sysfs.root)) or ())
    assert (first.index, first.vendor, first.name, first.device) == (0, "AMD", "MI300X", "/dev/dri/renderD128")
    assert (first.memory_used, first.memory_total, first.utilisation) == (3 * GIB, 64 * GIB, 0.37)
    assert first.uuid == "GPU-0000000000001235" and first.minor is None and first.node_index == 0
    assert (second.index, second.utilisation, second.memory_used) == (1, 0, 0)
    # The tenth node is the last, and what its files do not say is not known.
    assert (third.index, third.vendor, third.device) == (2, "Hygon", "/dev/dri/renderD130")
    assert (third.memory_used, third.memory_total, third.utilisation) == (None, None, None)
    assert all(gpu.uses == () and gpu.uses_known for gpu in (first, second, third))


def test_who_is_on_each_gpu(sysfs: Sys) -> None:
    # The kernel has a file for every GPU of a process: without memory and without a queue it is not on it.
    sysfs.process(700, vram_15209=GIB, vram_17126=0, vram_62=0, sdma_15209=5)
    sysfs.process(70, queues=(17126, 17126), vram_15209=0, vram_17126=0)
    sysfs.process(7000, vram_15209=2 * GIB)
    first, second, third = gpus.read(kfd.look(str(sysfs.root)) or ())
    assert [(use.pid, use.memory, use.kind) for use in first.uses] == [
        (700, GIB, "compute"),
        (7000, 2 * GIB, "compute"),
    ]
    assert [(use.pid, use.memory) for use in second.uses] == [(70, 0)]
    assert third.uses == () and third.uses_known


def test_a_kernel_without_the_folder_of_processes_says_nothing_about_them(sysfs: Sys) -> None:
    (sysfs.kfd / "proc").rmdir()
    assert [gpu.uses_known for gpu in gpus.read(kfd.look(str(sysfs.root)) or ())] == [False] * 3


def test_a_gpu_that_the_control_group_hides_is_not_there(sysfs: Sys) -> None:
    # Its files answer "operation not permitted": to everybody, unlike a mode, which root would pass.
    (sysfs.kfd / "topology/nodes/1/gpu_id").unlink()
    assert [gpu.device for gpu in gpus.read(kfd.look(str(sysfs.root)) or ())] == [
        "/dev/dri/renderD129",
        "/dev/dri/renderD130",
    ]


@pytest.mark.parametrize("nonsense", ["", "x", "-1", "9" * 30, "\0"])
def test_nonsense_is_not_passed_on(sysfs: Sys, nonsense: str) -> None:
    for name in ("mem_info_vram_used", "mem_info_vram_total", "gpu_busy_percent"):
        sysfs.put(f"drm/renderD128/device/{name}", nonsense)
    sysfs.put("kfd/kfd/proc/5/vram_15209", nonsense)
    sysfs.put("kfd/kfd/proc/5/vram_x", 1)
    sysfs.put("kfd/kfd/proc/5/queues/0/gpuid", nonsense)
    sysfs.put("kfd/kfd/proc/y/vram_15209", 1)
    first = gpus.read(kfd.look(str(sysfs.root)) or ())[0]
    assert (first.memory_used, first.memory_total, first.utilisation, first.uses) == (None, None, None, ())


def test_more_in_use_than_there_is_makes_no_sense(sysfs: Sys) -> None:
    sysfs.put("drm/renderD128/device/mem_info_vram_used", 65 * GIB)
    sysfs.put("drm/renderD128/device/gpu_busy_percent", 101)
    first = gpus.read(kfd.look(str(sysfs.root)) or ())[0]
    assert (first.memory_used, first.utilisation) == (None, None) and "makes no sense" in first.notes[0]


def test_without_the_driver_there_is_no_answer(tmp_path: Path) -> None:
    assert kfd.look(str(tmp_path)) is None


@pytest.mark.parametrize("driver", [True, False])
def test_the_kernel_s_word_goes_before_the_files(sysfs: Sys, monkeypatch: pytest.MonkeyPatch, driver: bool) -> None:
    files = ("/dev/davinci0", "/dev/dri/renderD128", "/dev/dri/renderD131", "/dev/kfd")
    monkeypatch.setattr(device_files, "present", lambda: files)
    monkeypatch.setattr(nvml, "library_present", lambda: False)
    told = gpus.read(gpus.look(str(sysfs.root) if driver else "/nowhere")["gpus"])
    by_kernel = [gpu.device for gpu in told if gpu.uses_known]
    by_file = [(gpu.vendor, gpu.device) for gpu in told if not gpu.uses_known]
    if driver:
        assert by_kernel == ["/dev/dri/renderD128", "/dev/dri/renderD129", "/dev/dri/renderD130"]
        assert by_file == [("Ascend", "/dev/davinci0")]  # 131 belongs to a display
    else:
        assert by_kernel == []
        assert by_file == [("Ascend", "/dev/davinci0")] + [
            ("AMD or Hygon", path) for path in ("/dev/dri/renderD128", "/dev/dri/renderD131")
        ]


def test_a_render_node_is_metax_s_beside_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_files, "present", lambda: ("/dev/dri/renderD128", "/dev/mxcd"))
    monkeypatch.setattr(nvml, "library_present", lambda: False)
    (told,) = gpus.read(gpus.look()["gpus"])
    assert (told.vendor, told.index, told.device) == ("MetaX", 0, "/dev/dri/renderD128")


@pytest.mark.parametrize(
    ("path", "vendor", "index"),
    [
        ("/dev/davinci3", "Ascend", 3),
        ("/dev/cambricon_dev1", "Cambricon", 1),
        ("/dev/mtgpu.5", "Moore Threads", 5),
        ("/dev/iluvatar2", "Iluvatar", 2),
        ("/dev/gcu0", "Enflame", 0),
        ("/dev/xpu7", "Kunlunxin", 7),
    ],
)
def test_the_others_are_known_by_their_files(
    path: str, vendor: str, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_files, "present", lambda: (path,))
    monkeypatch.setattr(nvml, "library_present", lambda: False)
    (told,) = gpus.read(gpus.look()["gpus"])
    assert (told.vendor, told.index, told.device, told.minor) == (vendor, index, path, None)
    assert (told.memory_used, told.utilisation, told.uses_known) == (None, None, False)
