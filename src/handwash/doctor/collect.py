"""The doctor's looks: nvidia-smi, driver and modules, the set-up, the scheduler's GPUs and clock. Each in a process of its
own, under one deadline."""

from __future__ import annotations

import os

from handwash import judge, limits, paths, run, schedulers, survey, world
from handwash.accelerators import device_files, nvml
from handwash.config import Config
from handwash.doctor.evidence import Evidence, Machine, SetUp, Smi
from handwash.messages import _
from handwash.model import Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

_SMI_PLACES = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib", "/opt/bin")
_SMI_CAP = 300
_RUNTIME = "libcudart.so"
_START_UP_CAP = 1024 * 1024


def take(settings: Config) -> Evidence:
    """The survey, then the doctor's own looks, which go by what it has found: one deadline for each of the two.

    What hung in the survey is not asked again, so where one thing hangs it is one deadline in all.
    """
    seen = survey.take(settings.deadline)
    questions: dict[str, Callable[[], Any]] = {"machine": _machine, "set_up": lambda: _set_up(settings)}
    hangs = isinstance(seen.gpus, Unknown) and seen.gpus.cause == "driver-hangs"
    if not hangs:
        questions["smi"] = _smi
    # One that has not answered is not asked a second time.
    if not isinstance(seen.jobs, Unknown):
        questions["partitions"] = schedulers.here().ask_gpus
        questions["clock"] = schedulers.here().clock
    answers = run.looks(questions, settings.deadline)
    now = world.now()
    verdict = judge.judge(seen, world.uid(), now, settings.policy)
    smi = answers.get("smi", {"path": run.find("nvidia-smi"), "timed_out": True})
    return Evidence(
        survey=seen,
        smi=smi if isinstance(smi, Unknown) else Smi(**smi),
        machine=_read(answers["machine"], Machine),
        set_up=_read(answers["set_up"], SetUp),
        partitions=_read_partitions(answers.get("partitions")),
        controller_skew=answers["clock"] if isinstance(answers.get("clock"), (int, float)) else None,
        left_over=verdict.leftovers,
        over_limits=limits.over(seen, verdict, settings.policy, now),
        now=now,
    )


def _read(answer: Any, record: Any) -> Any:
    if isinstance(answer, Unknown):
        return answer
    return record(**{name: tuple(value) if isinstance(value, list) else value for name, value in answer.items()})


def _smi() -> dict[str, Any]:
    path = run.find("nvidia-smi")
    if path is None:
        found = (f"{folder}/nvidia-smi" for folder in _SMI_PLACES)
        return {"path": None, "elsewhere": next((place for place in found if os.access(place, os.X_OK)), None)}
    try:
        result = run.run([path, "-L"], timeout=60)
    except OSError as error:
        return {"path": path, "code": 127, "said": str(error.strerror)}
    text = result.out.decode("utf-8", "replace")
    lines = text.splitlines()
    said = (result.err.decode("utf-8", "replace").strip() or text.strip()).splitlines()
    return {
        "path": path,
        "code": result.code,
        "gpus": sum(line.startswith("GPU ") for line in lines),
        "said": said[0][:_SMI_CAP] if said else "",
        "timed_out": result.timed_out,
    }


def _machine() -> dict[str, Any]:
    env = world.env
    signs = ("LMOD_CMD", "MODULESHOME", "LMOD_DIR", "MODULES_CMD")
    return {
        "device_files": list(device_files.present()),
        "hardware": device_files.nvidia_hardware(),
        "kernel_driver": _kernel_driver(),
        "library": nvml.library_present(),
        "module_system": next((name for name in signs if env.get(name)), None),
        "modules": [name for name in env.get("LOADEDMODULES", "").split(":") if name],
        "runtime": _runtime(),
        "cuda_visible": env.get("CUDA_VISIBLE_DEVICES"),
    }


def _kernel_driver(path: str = "/proc/driver/nvidia/version") -> str | None:
    """The version in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  …`."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            words = file.readline(1000).split()
    except OSError:
        return None
    return next((word for word in words if word[:1].isdigit() and "." in word), "")


def _runtime() -> str | None:
    """Where the CUDA runtime is found by the loader: LD_LIBRARY_PATH, as the person has it, or its cache."""
    folders = world.env.get("HANDWASH_LD_LIBRARY_PATH") or world.env.get("LD_LIBRARY_PATH", "")
    for folder in folders.replace(";", ":").split(":"):
        if folder and any(name.startswith(_RUNTIME) for name in device_files.names(folder)):
            return folder
    try:
        with open("/etc/ld.so.cache", "rb") as file:
            return "/etc/ld.so.cache" if _RUNTIME.encode() in file.read() else None
    except OSError:
        return None


def _set_up(settings: Config) -> dict[str, Any]:
    world.add_site_packages()
    from handwash.shell import detect, hooks, startup_files

    name = detect.shell_name()
    row = startup_files.find(name or "")
    home = os.path.expanduser("~")
    files = [*row.candidates(home), *_site_files(row.name)] if row else []
    blocks = [path for path in dict.fromkeys(files) if _mentions_hook(path)]
    interpreter, why = _interpreter(_named_interpreter(blocks) or hooks.interpreter())
    state_why, skew = _state()
    return {
        "shell": name,
        "terminal": os.isatty(0) or _has_terminal(),
        "blocks": blocks,
        "shown": bool(world.env.get("HANDWASH_SHOWN")),
        "disabled": "HANDWASH_DISABLE" if world.disabled() else "handwash.toml" if settings.disable else None,
        "banner_off": settings.banner == "off",
        "exit_lines": list(exit_lines(_start_up_files(home, row.files(home) if row else ()))),
        "interpreter": interpreter,
        "interpreter_why": why,
        "state_dir": paths.state_dir(),
        "state_why": state_why,
        "file_skew": skew,
    }  # fmt: skip


def _has_terminal() -> bool:
    """The look's own streams are /dev/null: the controlling terminal tells."""
    from handwash.survey import procfs

    fields = procfs.stat_fields(os.getpid())
    return fields is not None and int(fields[1][4]) != 0


def _site_files(shell: str) -> list[str]:
    from handwash.shell import site_files

    return [place.path for place in site_files.places("/") if shell in place.shells]


def _mentions_hook(path: str) -> bool:
    from handwash.shell import block

    try:
        return block.has(_bytes(path))
    except (OSError, block.Unbalanced):
        return False


def _named_interpreter(blocks: Iterable[str]) -> str | None:
    """The Python that the first block names: that of an installation that may be gone by now."""
    import re
    import shlex

    for path in blocks:
        found = re.search(r"__handwash_python[= ](.*)", _bytes(path).decode("utf-8", "replace"))
        try:
            words = shlex.split(found[1]) if found else []
        except ValueError:
            continue
        if words:
            return words[0].rstrip(";")
    return None


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(_START_UP_CAP)


def _start_up_files(home: str, files: Iterable[str]) -> list[str]:
    """Those with the hook, and those where people keep their aliases."""
    usual = (
        ".bashrc",
        ".bash_aliases",
        ".bash_profile",
        ".profile",
        ".zshrc",
        ".tcshrc",
        ".cshrc",
        ".kshrc",
        ".mkshrc",
    )
    return list(dict.fromkeys([*files, *(os.path.join(home, name) for name in usual)]))


def exit_lines(files: Iterable[str]) -> Iterable[str]:
    """Lines of start-up files in which a person gives `exit` or `logout` a meaning of their own (FILE:LINE: TEXT)."""
    import re

    own = re.compile(
        r"^\s*(alias\s+(-\w+\s+)*(exit|logout)[=\s]|function\s+(exit|logout)\b|(exit|logout)\s*\(\s*\))", re.MULTILINE
    )
    for path in files:
        try:
            text = _bytes(path).decode("utf-8", "replace")
        except OSError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if own.match(line):
                yield f"{path}:{number}: {line.strip()[:80]}"


def _interpreter(path: str) -> tuple[str, str | None]:
    """The interpreter that the hook calls, started as the hook does: isolated, with none of the person's variables."""
    main = os.path.join(paths.PACKAGE, "__main__.py")
    try:
        result = run.run([path, "-I", "-S", main, "--version"], timeout=60)
    except OSError as error:
        return path, str(error.strerror)
    if result.timed_out:
        return path, _("no answer in time")
    if result.code == 0:
        return path, None
    words = result.err.decode("utf-8", "replace").strip().splitlines()
    return path, words[-1][:_SMI_CAP] if words else _("exit code {code}").format(code=result.code)


def _state() -> tuple[str | None, float | None]:
    """Why the state folder cannot be written, or None; and how far its file server's clock is ahead (seconds)."""
    path = os.path.join(paths.state_dir(), f"doctor.{os.getpid()}")
    try:
        before = world.now()
        paths.write_whole(path, b"x" * 4096)
        stamp = os.stat(path).st_mtime
        after = world.now()
        os.unlink(path)
    except OSError as error:
        return str(error.strerror), None
    return None, min(stamp - before, stamp - after, key=abs)


def _read_partitions(answer: Any) -> Any:
    if answer is None or isinstance(answer, Unknown):
        return answer
    try:
        return schedulers.here().partitions(answer)
    except run.CouldNotTell as reason:
        return Unknown(str(reason))
