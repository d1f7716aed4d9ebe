"""Settings: the site's file, then the person's, then the environment; the later one wins.

A setting that cannot be used is told in one line and the one before it stays in force: a typing error in a file on the
shared disk must not take anybody's shell away.
"""

from __future__ import annotations

import sys

from handwash import paths, slurm_names, world
from handwash.frozen import frozen, replace
from handwash.limits import Policy
from handwash.messages import _

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BANNERS = ("full", "line", "off")
ON_EXIT = ("ask", "warn", "clean", "off")
LIMITS = ("login_cores", "login_memory", "login_threads")
_SIZE_CAP = 256 * 1024


@frozen
class Config:
    """`deadline`: seconds for a check; `grace`: seconds between TERM and KILL. `complaints`: what could not be used.

    `login_cores`, `login_memory` (GiB), `login_threads`: the limits on a login node, see `limits.Policy`. `idle_after`:
    minutes before a GPU that does nothing is called idle, see `idle`. `scheduler`: see `schedulers.choose`. `slurm_names`:
    see `slurm_names.parse`.
    """

    disable: bool = False
    banner: str = "full"
    on_exit: str = "ask"
    deadline: float = 3.0
    grace: float = 5.0
    lang: str | None = None
    complaints: tuple[str, ...] = ()
    login_cores: float = 0.5
    login_memory: float = 8.0
    login_threads: float = 256
    idle_after: float = 10.0
    scheduler: str = ""
    slurm_names: str | None = None

    @property
    def policy(self) -> Policy:
        """What the judge has to know of it."""
        return Policy(
            login_cores=self.login_cores, login_memory=self.login_memory * 1024**3, login_threads=self.login_threads
        )


def load() -> Config:
    """The settings in force. Reads no file that is not there, and imports no TOML reader for it."""
    config = Config()
    own = world.env.get("HANDWASH_CONFIG") or paths.user_config_file()
    for path in (paths.site_config_file(), own):
        config = _with_file(config, path, must_exist=path == world.env.get("HANDWASH_CONFIG"))
    return _with_environment(config)


def _with_file(config: Config, path: str, must_exist: bool) -> Config:
    try:
        with open(path, "rb") as file:
            content = file.read(_SIZE_CAP + 1)
    except FileNotFoundError:
        return _complain(config, _("{path} does not exist.").format(path=path)) if must_exist else config
    except OSError as error:
        return _complain(config, _("{path} cannot be read: {error}.").format(path=path, error=error.strerror))
    if len(content) > _SIZE_CAP:
        return _complain(config, _("{path} is too large for a settings file.").format(path=path))
    try:
        values = _toml(content)
    except (ValueError, RecursionError) as error:
        return _complain(config, _("{path} is not valid TOML: {error}.").format(path=path, error=error))
    for name, value in values.items():
        config = _with_value(config, name, value, path)
    return config


def _toml(content: bytes) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib as reader
    else:
        world.add_site_packages()
        import tomli as reader
    return reader.loads(content.decode("utf-8"))


def _with_environment(config: Config) -> Config:
    if world.env.get("HANDWASH_DISABLE"):
        config = replace(config, disable=world.disabled())
    for name in ("banner", "on_exit", "deadline", "grace", "lang", "idle_after", "scheduler", "slurm_names", *LIMITS):
        variable = "HANDWASH_" + name.upper()
        text = world.env.get(variable)
        if text:
            config = _with_value(config, name, text, variable)
    return config


def _with_value(config: Config, name: str, value: Any, where: str) -> Config:
    usable: Any = None
    expected = ""
    if name == "disable":
        usable, expected = (value if isinstance(value, bool) else None), "true, false"
    elif name == "banner":
        usable, expected = (value if value in BANNERS else None), ", ".join(BANNERS)
    elif name == "on_exit":
        usable, expected = (value if value in ON_EXIT else None), ", ".join(ON_EXIT)
    elif name in ("deadline", "grace"):
        usable = _number(value, smallest=0.1 if name == "deadline" else 0.0, largest=600)
        expected = _("a number of seconds")
    elif name == "idle_after":
        usable, expected = _number(value, smallest=0.0, largest=1e6), _("a number of minutes")
    elif name in LIMITS:
        usable, expected = _number(value, smallest=0.01, largest=1e6), _("a number greater than 0")
    elif name == "scheduler":
        usable, expected = _scheduler(value), _("auto, slurm, pbs, or the name of a module")
    elif name == "lang":
        usable, expected = (value if isinstance(value, str) else None), "en, zh_CN"
    elif name == "slurm_names":
        usable = value if isinstance(value, str) and slurm_names.parse(value) is not None else None
        expected = "yh, srun=NAME sbatch=NAME …"
    else:
        return _complain(config, _("{where}: there is no setting {name}.").format(where=where, name=repr(name)))
    if usable is None:
        sentence = _("{where}: {name} cannot be {value}; it takes: {expected}.")
        return _complain(config, sentence.format(where=where, name=name, value=repr(value), expected=expected))
    return replace(config, **{name: usable})


def _scheduler(value: Any) -> str | None:
    if not isinstance(value, str) or not all(word.isidentifier() for word in value.split(".")):
        return None
    return "" if value == "auto" else value


def _number(value: Any, smallest: float, largest: float) -> float | None:
    """A number within bounds, or None."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if smallest <= number <= largest else None


def _complain(config: Config, sentence: str) -> Config:
    return replace(config, complaints=(*config.complaints, sentence))
