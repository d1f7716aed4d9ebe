"""A fake NVIDIA driver for one test: the library of nvml.c and the state file it answers from."""

from __future__ import annotations

from pathlib import Path

from tests.testbed.driver.build import build

GIB = 1024**3
# nvmlReturn_t of NVIDIA's nvml.h.
CODES = {
    "UNINITIALIZED": 1,
    "INVALID_ARGUMENT": 2,
    "NOT_SUPPORTED": 3,
    "NO_PERMISSION": 4,
    "NOT_FOUND": 6,
    "INSUFFICIENT_SIZE": 7,
    "DRIVER_NOT_LOADED": 9,
    "TIMEOUT": 10,
    "LIBRARY_NOT_FOUND": 12,
    "FUNCTION_NOT_FOUND": 13,
    "GPU_IS_LOST": 15,
    "RESET_REQUIRED": 16,
    "LIB_RM_VERSION_MISMATCH": 18,
    "UNKNOWN": 999,
}
V3_LISTS = tuple(f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute"))
V1_LISTS = tuple(symbol[: -len("_v3")] for symbol in V3_LISTS)
V2_LISTS = tuple(f"nvmlDeviceGet{kind}RunningProcesses_v2" for kind in ("Compute", "Graphics", "MPSCompute"))


class FakeDriver:
    """Each method changes the world at once, for programs that run already too, and returns the driver.

    `directory` (made if need be, readable by everybody) holds the library and the state file.
    """

    def __init__(self, directory: Path | str, gpus: int = 0) -> None:
        self.directory = Path(directory)
        self.library_folder = self.directory / "lib"
        self.state = self.directory / "nvml.state"
        self._versions = {"driver": "550.54.15", "nvml": "12.550.54.15", "cuda": "12040"}
        self._gpus: dict[int, dict[str, object]] = {}
        self._others: list[str] = []
        self._processes: list[tuple[int, int, str]] = []
        self._rules: list[str] = []
        self.directory.mkdir(parents=True, exist_ok=True)
        for folder in (self.directory, self.library_folder):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)
        build(self.library_folder)
        self.gpus(gpus)

    def env(self) -> dict[str, str]:
        """What a program needs in its environment to ask this driver."""
        return {"LD_LIBRARY_PATH": str(self.library_folder), "HANDWASH_FAKE_NVML": str(self.state)}

    def gpus(self, count: int, **options: object) -> FakeDriver:
        """`count` GPUs, all with the same options (those of the `gpu` statement); in use is what their processes use."""
        self._gpus = {index: dict(options) for index in range(count)}
        return self.write()

    def gpu(self, index: int, **options: object) -> FakeDriver:
        """Changes or adds one GPU."""
        self._gpus.setdefault(index, {}).update(options)
        return self.write()

    def mig(self, gpu: int, gi: int, ci: int = 0, **options: object) -> FakeDriver:
        """One MIG instance; switches the GPU's MIG mode on."""
        self._others.append(f"mig {gpu} gi={gi} ci={ci} {_words(options)}")
        return self.gpu(gpu, mig=1)

    def process(
        self, gpu: int, pid: int, memory: int | str = GIB, kind: str = "compute", ghost: bool = False, **options: object
    ) -> FakeDriver:
        """One process on a GPU; it leaves the list, and its memory comes back, when it dies, unless it is a `ghost`."""
        words = _words({"pid": pid, "memory": memory, "kind": kind, "while_alive": int(not ghost), **options})
        self._processes.append((gpu, pid, f"process {gpu} {words}"))
        return self.write()

    def forget(self, pid: int) -> FakeDriver:
        """Takes a process out of every list."""
        self._processes = [entry for entry in self._processes if entry[1] != pid]
        return self.write()

    def holders(self, memory: int = GIB) -> FakeDriver:
        """Besides, every process that holds a GPU's device files open is on it, with so much memory."""
        self._others.append(f"holders memory={memory}")
        return self.write()

    def driver(self, version: str) -> FakeDriver:
        """The driver's version; 535.43 to 535.85 also get the layout of the `_v3` process lists that only they had."""
        self._versions["driver"] = version
        major, minor = version.split(".")[:2]
        self._versions["layout535"] = str(int(major == "535" and 43 <= int(minor) <= 85))
        return self.write()

    def fault(
        self, symbol: str, code: int | str, gpu: int | None = None, count: int | None = None, after: int = 0
    ) -> FakeDriver:
        """`symbol` (or `*`) returns `code`, a number or a name in CODES; after `after` good calls, `count` times."""
        return self._rule(f"fault {symbol} {CODES.get(str(code), code)}", gpu, count, after)

    def delay(
        self, symbol: str, seconds: float | str, gpu: int | None = None, count: int | None = None, after: int = 0
    ) -> FakeDriver:
        """`symbol` takes so long, or "forever" (110 s)."""
        return self._rule(f"delay {symbol} {seconds}", gpu, count, after)

    def crash(self, symbol: str, gpu: int | None = None) -> FakeDriver:
        """`symbol` ends the program that calls it by SIGSEGV."""
        return self._rule(f"crash {symbol} 0", gpu, None, 0)

    def grow(self, symbol: str, gpu: int | None = None, count: int = 1) -> FakeDriver:
        """The process list `symbol` has outgrown the room offered, `count` times."""
        return self._rule(f"grow {symbol} 0", gpu, count, 0)

    def missing(self, *symbols: str) -> FakeDriver:
        """The library has no such symbols, like that of an old driver. Programs that have it loaded do not notice."""
        build(self.library_folder, symbols)
        return self

    def heal(self) -> FakeDriver:
        """Takes every fault, delay, crash and growth away."""
        self._rules = []
        return self.write()

    def write(self) -> FakeDriver:
        """Writes the state file, whole and at once."""
        lines = [f"{word} {value}" for word, value in self._versions.items()]
        lines += [f"gpu {index} {_words(options)}" for index, options in sorted(self._gpus.items())]
        lines += [*self._others, *(line for _gpu, _pid, line in self._processes), *self._rules]
        scratch = self.state.with_suffix(".new")
        scratch.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogateescape")
        scratch.chmod(0o644)
        scratch.rename(self.state)
        return self

    def _rule(self, line: str, gpu: int | None, count: int | None, after: int) -> FakeDriver:
        options = {"gpu": gpu, "count": count, "after": after or None}
        self._rules.append(f"{line} {_words({k: v for k, v in options.items() if v is not None})}")
        return self.write()


def _words(options: dict[str, object]) -> str:
    return " ".join(f'{key}="{value}"' for key, value in options.items())
