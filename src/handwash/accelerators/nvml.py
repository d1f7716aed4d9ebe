"""The NVIDIA driver's own word, by NVML through nvidia-ml-py: the GPUs, how full and busy they are, and who is on them.

`look` belongs into a child process with a deadline (`run.looks`): a library that does not fit the driver can crash, and on
a wedged driver a call sleeps for ever in the kernel. A call that hangs is left in a thread of its own, so that the GPUs
that have answered are told; nothing but the end of the child ends it. nvmlShutdown is not called: the end does that too.
"""

from __future__ import annotations

import os

from handwash import patience, run, world
from handwash.messages import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from handwash.accelerators.bindings import NoAnswer

LIBRARY = "libnvidia-ml.so.1"
# The hooks start handwash without the person's LD_LIBRARY_PATH, which may hide Python's own libraries, and hand it on here.
_PUT_ASIDE = "HANDWASH_LD_LIBRARY_PATH"
# Where glibc looks without a cache (ld.so(8)), and the place of the Windows subsystem's driver.
_DEFAULT_FOLDERS = (
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib",
    "/usr/lib/wsl/lib",
)
# More than any node has: a count beyond it is nonsense from a broken library.
_MOST_GPUS = 512
_KEPT_S = 0.2
# nvmlReturn_t of NVIDIA's nvml.h. The numbers, because older releases of nvidia-ml-py lack some of the names.
_NO_PERMISSION = 4
_DRIVER_NOT_LOADED = 9
_LIBRARY_NOT_FOUND = 12
_FUNCTION_NOT_FOUND = 13
_GPU_IS_LOST = 15
_VERSION_MISMATCH = 18


def library_present(cache: str = "/etc/ld.so.cache", folders: Iterable[str] = _DEFAULT_FOLDERS) -> bool:
    """Whether the loader would find the driver's library; asks the files, because ctypes costs half a bare start."""
    if _in_folders(world.env.get("LD_LIBRARY_PATH", "")) or _in_folders(world.env.get(_PUT_ASIDE, "")):
        return True
    try:
        with open(cache, "rb") as file:
            if LIBRARY.encode() in file.read():
                return True
    except OSError:
        pass
    return any(os.path.exists(f"{folder}/{LIBRARY}") for folder in folders)


def _in_folders(path: str) -> str | None:
    """The library's first place in a list of folders as LD_LIBRARY_PATH has it (ld.so(8): colons or semicolons)."""
    places = (f"{folder}/{LIBRARY}" for folder in path.replace(";", ":").split(":") if folder)
    return next((place for place in places if os.path.exists(place)), None)


def look() -> dict[str, Any]:
    """All GPUs that the driver shows, as plain data, and in `why` and `cause` what kept it from showing all, or None and "".

    `driver`: its version; `gpus`: dictionaries with the fields of `model.Gpu`, where `uses` has rows of pid, memory, kind and
    instance. Trouble with one GPU is told in its `notes` and leaves the others as they are.
    """
    from handwash.accelerators.bindings import NoAnswer

    answer: dict[str, Any] = {"driver": "", "gpus": [], "why": None, "cause": ""}

    def ask() -> None:
        try:
            _ask(answer)
        except NoAnswer as reason:
            answer.update(why=str(reason), cause=reason.cause)
        except Exception as error:
            why = _("The NVIDIA driver could not be asked: {error}.")
            answer.update(why=why.format(error=f"{type(error).__name__}: {error}"), cause="driver-error")

    left = run.left()
    # A little is kept for what comes after.
    if patience.bounded(ask, None if left is None else left - min(_KEPT_S, left / 10)):
        return answer
    # Not the dictionary itself, to which the thread may still add.
    return {**answer, "gpus": list(answer["gpus"]), **silent(left or 0.0)}


def silent(seconds: float) -> dict[str, str]:
    """The `why` and the `cause` of a look that had no answer for so long."""
    why = _("The NVIDIA driver does not answer within {seconds} s: it hangs, or is very slow.")
    return {"why": why.format(seconds=f"{seconds:.1f}"), "cause": "driver-hangs"}


def _ask(answer: dict[str, Any]) -> None:
    """Puts the driver's word into `answer`, GPU by GPU as it comes."""
    from handwash.accelerators import bindings, nvml_gpu

    nvml = bindings.load()
    put_aside = _in_folders(world.env.get(_PUT_ASIDE, ""))
    try:
        if put_aside:
            from ctypes import CDLL

            nvml.nvmlLib = CDLL(put_aside)
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        raise _no_answer(error) from None
    except OSError:
        raise _broken_library() from None
    if not 0 <= count <= _MOST_GPUS:
        nonsense = _("The NVIDIA driver's answer makes no sense: {count} GPUs.")
        raise bindings.NoAnswer(nonsense.format(count=count), "driver-nonsense")
    try:
        answer["driver"] = nvml.nvmlSystemGetDriverVersion()
    except (nvml.NVMLError, UnicodeDecodeError):
        pass
    for index in range(count):
        answer["gpus"] += nvml_gpu.look_at(nvml, index, answer["driver"])


def _broken_library() -> NoAnswer:
    from handwash.accelerators.bindings import NoAnswer

    sentence = _("The NVIDIA driver's library ({library}) cannot be loaded.")
    return NoAnswer(sentence.format(library=LIBRARY), "library-broken")


def _no_answer(error: Any) -> NoAnswer:
    """The reason in words for an error (its number is NVML's) that stops the whole look."""
    from handwash.accelerators.bindings import NoAnswer
    from handwash.accelerators.nvml_gpu import words

    code = error.value
    if code == _DRIVER_NOT_LOADED:
        return NoAnswer(_("The NVIDIA driver is not loaded on this node."), "driver-not-loaded")
    if code == _VERSION_MISMATCH:
        return NoAnswer(
            _(
                "The NVIDIA driver and its library are of different versions: "
                "the node has not been rebooted since the driver was updated."
            ),
            "driver-mismatch",
        )
    if code == _LIBRARY_NOT_FOUND:
        if library_present():
            return _broken_library()
        sentence = _("The NVIDIA driver's library ({library}) is missing.")
        return NoAnswer(sentence.format(library=LIBRARY), "library-missing")
    if code == _NO_PERMISSION:
        return NoAnswer(_("No permission to ask the NVIDIA driver."), "no-permission")
    if code == _FUNCTION_NOT_FOUND:
        sentence = _("The NVIDIA driver is too old to be asked: its library lacks a function.")
        return NoAnswer(sentence, "driver-too-old")
    if code == _GPU_IS_LOST:
        sentence = _("The NVIDIA driver has lost a GPU and gives no answer: tell the administrator.")
        return NoAnswer(sentence, "gpu-lost")
    sentence = _("The NVIDIA driver gives no answer: {error}.")
    return NoAnswer(sentence.format(error=words(error)), "driver-error")
