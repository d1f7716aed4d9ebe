"""The prolog that safe-srun puts in the place of the person's and the site's: theirs runs as it would have."""

from __future__ import annotations

import time

import pytest
from tests.slurm.test_safe_srun import receipt, safe
from tests.testbed.cluster import Cluster

pytestmark = pytest.mark.usefixtures("handwash_venv")


def test_a_prolog_is_started_as_srun_does_it(any_cluster: Cluster) -> None:
    """With the person's command as its arguments; by a bare name, not at all, or refused: as srun has it. The site's too."""
    home = any_cluster.home("alice")
    (home / "prolog").write_text('#!/bin/bash\nprintf "prolog [%s]\\n" "$@" >&2\n')
    (home / "prolog").chmod(0o755)
    (home / "text").write_text("")
    for given in ("./prolog", "prolog", f"{home}/prolog", "none", "None", "/nonexistent", "./text", "text"):
        words = ["-w", "n1", f"--prolog={given}", "echo", "a b", "c"]
        plain = any_cluster.run(["srun", *words], user="alice", check=True)
        done = safe(any_cluster, *words, check=True)
        assert (done.stdout, done.stderr.replace(receipt(done) + "\n", "")) == (plain.stdout, plain.stderr), given
    for path in (home / "prolog", home / "text"):
        path.unlink()


def test_the_persons_prolog_still_runs(any_cluster: Cluster) -> None:
    """Given as an option or by the environment, with the step's ids in its environment."""
    home = any_cluster.home("alice")
    script = home / "prolog"
    script.write_text(f'#!/bin/sh\necho "$SLURM_JOB_ID.$SLURM_STEP_ID" >>{home}/prolog.out\n')
    script.chmod(0o755)
    for options, extra in (([f"--prolog={script}"], {}), ([], {"SLURM_PROLOG": str(script)})):
        done = safe(any_cluster, *options, "bash", "-c", "echo $SLURM_JOB_ID.$SLURM_STEP_ID", env=extra, check=True)
        assert any_cluster.run(["cat", "prolog.out"], user="alice", check=True).stdout == done.stdout
        any_cluster.run(["rm", "prolog.out"], user="alice")
    script.unlink()


def test_the_sites_prolog_is_asked_for_once(any_cluster: Cluster) -> None:
    """With its arguments, from the controller's answer, then from memory; a controller that hangs holds nobody up."""
    home = any_cluster.home("alice")
    fake = home / "fake"
    fake.mkdir()
    (home / "prolog").write_text('#!/bin/bash\nprintf "prolog [%s]\\n" "$@" >&2\n')
    (fake / "scontrol").write_text(
        f"#!/bin/sh\necho x >>{home}/asked\n"
        f"echo 'ProctrackType = proctrack/pgid'\necho 'SrunEpilog = (null)\nSrunProlog              = {home}/prolog'\n"
    )
    for path in (home / "prolog", fake / "scontrol"):
        path.chmod(0o755)
    any_cluster.run(["touch", "asked"], user="alice", check=True)
    env = {"PATH": f"{fake}:{any_cluster.env('alice')['PATH']}", "XDG_STATE_HOME": f"{home}/state"}

    def run() -> tuple[list[str], int]:
        done = safe(any_cluster, "-w", "n1", "echo", "a b", env=env, check=True)
        return done.stderr.splitlines()[:-1], len((home / "asked").read_text().split())

    wanted = ["prolog [echo]", "prolog [a b]"]
    # By the prolog, and by safe-srun at the end; the keeper asks about the job's GPUs each time.
    before, asked = run()
    assert before == wanted
    assert [run(), run()] == [(wanted, asked + 1), (wanted, asked + 2)]
    (fake / "scontrol").write_text("#!/bin/sh\nexec sleep 60\n")
    any_cluster.run(["rm", "-r", "state"], user="alice", check=True)
    begun = time.monotonic()
    assert run()[0] == []
    assert time.monotonic() - begun < 15
    any_cluster.run(["rm", "-rf", "state", "asked"], user="alice", check=True)
    for path in (home / "prolog", fake / "scontrol"):
        path.unlink()
    fake.rmdir()
