"""Where handwash's own files and the person's state and configuration lie.

The folders are those of platformdirs on Linux (XDG base directory specification 0.8), computed here because its import
costs three bare interpreter starts; a test compares the two.
"""

from __future__ import annotations

import os

from handwash import world

PACKAGE = os.path.dirname(os.path.abspath(__file__))
_APP = "handwash"


def _home() -> str:
    home = world.env.get("HOME")
    if home and os.path.isabs(home):
        return home
    import pwd

    try:
        return pwd.getpwuid(world.uid()).pw_dir
    except (KeyError, OSError):
        return "/"


def _xdg(variable: str, *fallback: str) -> str:
    # platformdirs takes the variable as it is, blank or unset excepted; a relative path is invalid by the specification
    # and would make us write into the working directory.
    value = world.env.get(variable, "").strip()
    return value if os.path.isabs(value) else os.path.join(_home(), *fallback)


def state_dir() -> str:
    """The person's state folder, for example ~/.local/state/handwash. It may not exist."""
    return os.path.join(_xdg("XDG_STATE_HOME", ".local", "state"), _APP)


def user_config_file() -> str:
    return os.path.join(_xdg("XDG_CONFIG_HOME", ".config"), _APP, "handwash.toml")


def site_config_file() -> str:
    first = world.env.get("XDG_CONFIG_DIRS", "").strip().split(":")[0]
    return os.path.join(first if os.path.isabs(first) else "/etc/xdg", _APP, "handwash.toml")


def shellhooks_dir() -> str:
    """The folder of the hook files: inside the package in a wheel, at the top of the checkout in an editable install."""
    inside = os.path.join(PACKAGE, "shellhooks")
    if os.path.isdir(inside):
        return inside
    return os.path.join(os.path.dirname(os.path.dirname(PACKAGE)), "shellhooks")


def make_private(folder: str) -> None:
    """Makes a folder of mode 0700 with its parents. Raises OSError."""
    # The mode of os.makedirs() is for the last folder only (Python 3.7); the others would be everybody's with umask 0.
    above = os.path.dirname(folder)
    if above != folder and not os.path.isdir(above):
        make_private(above)
    os.makedirs(folder, mode=0o700, exist_ok=True)


def write_whole(path: str, content: bytes) -> None:
    """Writes a file of mode 0600 under a new name and renames it into place. Raises OSError; never leaves half a file."""
    make_private(os.path.dirname(path))
    scratch = f"{path}.{os.getpid()}.new"
    try:
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(handle, view) :]
        finally:
            os.close(handle)
        os.rename(scratch, path)
    except OSError:
        try:
            os.unlink(scratch)
        except OSError:
            pass
        raise
