"""Build step: compile the message catalogues (.po, in the repository) to the .mo files that gettext reads."""

from __future__ import annotations

import glob
import io
import os
from typing import Any

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileMessages(BuildHookInterface):  # type: ignore[type-arg]
    """Writes NAME.mo beside each NAME.po; fuzzy entries are left out, as msgfmt does."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        pattern = os.path.join(self.root, "src", "handwash", "messages", "locale", "*", "LC_MESSAGES", "*.po")
        for po in glob.glob(pattern):
            with open(po, "rb") as source:
                catalogue = read_po(source)
            compiled = io.BytesIO()
            write_mo(compiled, catalogue)
            name = po[: -len(".po")] + ".mo"
            # Under a new name first: another build, or a test, may be reading it.
            scratch = f"{name}.{os.getpid()}"
            with open(scratch, "wb") as target:
                target.write(compiled.getvalue())
            os.replace(scratch, name)
