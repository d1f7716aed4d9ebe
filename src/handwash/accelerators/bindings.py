"""Gets hold of nvidia-ml-py, at a third of the cost of a plain import and past a package that took its name."""

from __future__ import annotations

import os
import sys

from handwash import world
from handwash.messages import _
from handwash.run import CouldNotTell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_FILE = "pynvml.py"


class NoAnswer(CouldNotTell):
    """A driver that cannot be asked, or does not answer. `cause`: the word of `model.Unknown` for it."""

    def __init__(self, why: str, cause: str) -> None:
        super().__init__(why)
        self.cause = cause


def load() -> Any:
    """The module `pynvml` of nvidia-ml-py. Raises NoAnswer where it is missing or another package took its name.

    To be called in a process that lives for one look: it leaves garbage collection off.
    """
    if not any(os.path.exists(f"{folder}/{_FILE}") for folder in sys.path):
        folder = _own_site_packages()
        if os.path.exists(f"{folder}/{_FILE}"):
            sys.path.append(folder)
        else:
            world.add_site_packages()
    other = None
    try:
        module = _import_light("pynvml")
        if _is_right(module):
            return module
        other = getattr(module, "__file__", None) or "pynvml"
    except Exception as error:
        if not isinstance(error, ModuleNotFoundError) or error.name != "pynvml":
            other = "pynvml"
    # The package `pynvml` on PyPI is another one; its folder `pynvml/` wins over nvidia-ml-py's file beside it.
    for folder in sys.path:
        if other and os.path.isdir(f"{folder}/pynvml") and os.path.exists(f"{folder}/{_FILE}"):
            module = _load_file(f"{folder}/{_FILE}")
            if _is_right(module):
                return module
    if other is None:
        raise NoAnswer(
            _("The Python package nvidia-ml-py is missing, so the NVIDIA driver cannot be asked."), "bindings"
        )
    raise NoAnswer(
        _(
            "Another Python package hides nvidia-ml-py ({path}), so the NVIDIA driver cannot be asked: "
            "uninstall pynvml and reinstall nvidia-ml-py."
        ).format(path=other),
        "bindings",
    )


def _own_site_packages() -> str:
    """The site-packages folder beside this interpreter, which `-S` leaves out of the path."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return os.path.join(os.path.dirname(os.path.dirname(sys.executable)), "lib", version, "site-packages")


def _is_right(module: Any) -> bool:
    return not hasattr(module, "__path__") and hasattr(module, "nvmlDeviceGetComputeRunningProcesses_v3")


def _load_file(path: str) -> Any:
    from importlib.machinery import SourceFileLoader

    module = type(sys)("pynvml")
    sys.modules["pynvml"] = module
    SourceFileLoader("pynvml", path).exec_module(module)
    return module


def _import_light(name: str) -> Any:
    """Imports a module and puts three of its imports off until they are used: 12 ms instead of 45 for nvidia-ml-py.

    Releases 11 to 13 take one function each from functools, string and ctypes.util: the first for their decorators, the
    second to name error classes, the third for nothing. Those bring in re, subprocess, shutil and tempfile.
    """
    import gc

    gc.disable()  # thousands of definitions and no garbage
    stand_ins = [
        _stand_in("functools", wraps=_wraps),
        _stand_in("string", capwords=_capwords),
        _stand_in("ctypes.util", find_library=_find_library),
    ]
    try:
        return __import__(name)
    finally:
        for stand_in, module in stand_ins:
            if sys.modules.get(stand_in) is module:
                del sys.modules[stand_in]


def _stand_in(name: str, **given: Any) -> tuple[str, Any]:
    """Puts a module under `name`, unless the real one is there: it has what is `given`, and fetches the rest if asked."""
    module: Any = type(sys)(name)

    def fetch(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if sys.modules.get(name) is module:
            del sys.modules[name]
        __import__(name)
        return getattr(sys.modules[name], attribute)

    module.__dict__.update(given, __getattr__=fetch)
    sys.modules.setdefault(name, module)
    return name, module


def _capwords(text: str, separator: str) -> str:
    return separator.join(part.capitalize() for part in text.split(separator))


def _find_library(name: str) -> str | None:
    from ctypes.util import find_library

    return find_library(name)


def _wraps(wrapped: Any) -> Callable[[Any], Any]:
    def decorate(wrapper: Any) -> Any:
        wrapper.__name__, wrapper.__doc__, wrapper.__wrapped__ = wrapped.__name__, wrapped.__doc__, wrapped
        return wrapper

    return decorate
