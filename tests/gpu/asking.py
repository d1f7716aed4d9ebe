"""How the tests of this folder ask the fake driver: in a program of their own, since the library is found at its start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from handwash.model import Gpu
from handwash.survey import gpus

SOURCE = Path(gpus.__file__).parents[2]
PREAMBLE = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.path.insert(0, {str(SOURCE)!r})
from handwash import run, world
from handwash.accelerators import bindings, device_files, nvml
from handwash.model import Unknown
from handwash.survey import gpus
"""
# The look as the survey takes it, in a child with a deadline; `before` may change the world first.
LOOK = """
import json
{before}
answer = run.looks({{"gpus": nvml.look}}, {deadline})["gpus"]
if isinstance(answer, Unknown):
    answer = {{"unknown": answer.why, "cause": answer.cause, "gpus": []}}
elif answer["why"]:
    answer["unknown"] = answer["why"]
print(json.dumps(answer))
"""


def run_code(code: str, env: Mapping[str, str] | None = None) -> str:
    """The output of a program on the interpreter as the shell hooks start it: isolated and without site-packages."""
    environment = {"PATH": os.environ["PATH"], "HANDWASH_LANG": "en", **(env or {})}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PREAMBLE + code], env=environment, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def ask(env: Mapping[str, str], deadline: float = 10, before: str = "") -> dict[str, Any]:
    """The plain answer of the look, or the reason under `unknown`."""
    answer: dict[str, Any] = json.loads(run_code(LOOK.format(before=before, deadline=deadline), env))
    return answer


def seen(env: Mapping[str, str], before: str = "") -> tuple[Gpu, ...]:
    """The GPUs as records; fails where the look could not tell."""
    answer = ask(env, before=before)
    assert "unknown" not in answer, answer
    return gpus.read(answer["gpus"])
