"""The wrapper finds its interpreter in every kind of installation, and becomes plain srun where handwash is broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.testbed import other_names

ROOT = Path(__file__).resolve().parents[2]
WRAPPER = ROOT / "wrappers" / "safe-srun"
RELEASE = f"python{sys.version_info[0]}.{sys.version_info[1]}"


class Installation:
    """A prefix with the wrapper, a console script and the package, as an installer lays them out.

    `srun`: what the real one is called; `rest`: the folders behind it on PATH.
    """

    def __init__(self, prefix: Path, srun: str = "srun", rest: str = "/usr/bin:/bin") -> None:
        self.prefix = prefix
        self.bin = prefix / "bin"
        self.bin.mkdir(parents=True)
        self.wrapper = self.bin / "safe-srun"
        shutil.copy(WRAPPER, self.wrapper)
        self.console_script(f"#!{sys.executable}\n")
        self.package = self.add_package(RELEASE)
        fake = prefix / "fake"
        fake.mkdir()
        (fake / srun).write_text('#!/bin/sh\necho "plain srun: $*"\nexit 17\n')
        (fake / srun).chmod(0o755)
        self.srun = srun
        self.rest = rest
        self.env = {"PATH": f"{fake}:{rest}", "HOME": str(prefix), "LANG": "C.UTF-8"}

    def console_script(self, head: str) -> None:
        (self.bin / "handwash").write_text(f"{head}# -*- coding: utf-8 -*-\n")
        (self.bin / "handwash").chmod(0o755)

    def add_package(self, release: str, lib: str = "lib") -> Path:
        package = self.prefix / lib / release / "site-packages" / "handwash"
        shutil.copytree(ROOT / "src" / "handwash", package, ignore=shutil.ignore_patterns("__pycache__"))
        return package

    def run(self, *words: str, wrapper: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [wrapper or self.wrapper, *words], env={**self.env, **env}, capture_output=True, text=True, cwd="/"
        )

    def works(self, wrapper: Path | None = None) -> None:
        """It supervises: the shell's child that would outlive it is ended, and the code comes through."""
        done = self.run("--local", "sh", "-c", "sleep 100 >/dev/null 2>&1 & exit 5", wrapper=wrapper)
        assert (done.returncode, done.stdout, done.stderr) == (5, "", "handwash: 1 process ended\n")

    def is_plain(self, *reasons: str) -> None:
        done = self.run("-n2", "a b")
        assert (done.returncode, done.stdout) == (17, "plain srun: -n2 a b\n")
        assert done.stderr.startswith("handwash: ") and done.stderr.count("\n") == 1
        assert all(reason in done.stderr for reason in (*reasons, "running without supervision"))
        done = self.run("--local", "sh", "-c", "echo here; exit 5")
        assert (done.returncode, done.stdout) == (5, "here\n")


@pytest.fixture(scope="module")
def without_srun() -> Iterator[str]:
    """A folder with the programs of this machine, Slurm's left out."""
    with tempfile.TemporaryDirectory() as folder:
        yield str(other_names.links(Path(folder) / "bin", {}))


@pytest.fixture
def installation(tmp_path: Path, request: pytest.FixtureRequest) -> Installation:
    if getattr(request, "param", "srun") == "srun":
        return Installation(tmp_path / "a prefix")
    return Installation(tmp_path / "a prefix", request.param, request.getfixturevalue("without_srun"))


# As on a Tianhe system, too.
by_either_name = pytest.mark.parametrize("installation", ["srun", "yhrun"], indirect=True)


def test_the_console_script_names_the_interpreter(installation: Installation) -> None:
    installation.works()


@pytest.mark.parametrize(
    "form", ["'''exec' {} \"$0\" \"$@\"", "'''exec' '{}' \"$0\" \"$@\"", '\'\'\'exec\' "{}" "$0" "$@"']
)
def test_a_long_path_stands_in_the_second_line(installation: Installation, form: str) -> None:
    """As pip and uv write it where the first line would be too long or hold a space."""
    interpreter = installation.prefix / "python here"
    interpreter.symlink_to(sys.executable)
    installation.console_script("#!/bin/sh\n" + form.format(interpreter) + "\n' '''\n")
    installation.works()


def test_through_symbolic_links(installation: Installation, tmp_path: Path) -> None:
    """pipx and uv tool link into ~/.local/bin; relative links and links to links too."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.symlink_to(installation.wrapper)
    second.symlink_to("first")
    installation.works(wrapper=first)
    installation.works(wrapper=second)


def test_lib64_as_a_link_to_lib(installation: Installation) -> None:
    (installation.prefix / "lib64").symlink_to("lib")
    installation.works()


def test_lib64_alone(installation: Installation) -> None:
    (installation.prefix / "lib").rename(installation.prefix / "lib64")
    installation.works()


def test_a_checkout() -> None:
    done = subprocess.run([WRAPPER, "--local", "sh", "-c", "exit 6"], capture_output=True, text=True)
    assert done.returncode == 6


def test_the_persons_python_variables_and_folder_do_not_matter(installation: Installation, tmp_path: Path) -> None:
    (tmp_path / "select.py").write_text("raise SystemExit(99)\n")
    for env in (
        {"PYTHONPATH": str(tmp_path)},
        {"PYTHONHOME": "/nonexistent"},
        {"PYTHONSTARTUP": str(tmp_path / "select.py")},
    ):
        assert installation.run("--local", "true", **env).returncode == 0


@by_either_name
def test_the_interpreter_is_gone(installation: Installation) -> None:
    installation.console_script("#!/nonexistent/python3\n")
    installation.is_plain()


def test_the_package_is_gone(installation: Installation) -> None:
    shutil.rmtree(installation.prefix / "lib")
    # Ours may have an editable handwash; the one that it was made from has none.
    installation.console_script(f"#!{os.path.realpath(sys.executable)}\n")
    installation.is_plain()


def test_the_console_script_is_gone(installation: Installation) -> None:
    (installation.bin / "handwash").unlink()
    installation.is_plain()


@by_either_name
@pytest.mark.parametrize(
    "name",
    ["__init__.py", "frozen.py", "slurm_names.py", "run.py", "srun/__init__.py", "srun/launch.py", "srun/local.py"],
)
def test_a_file_of_the_package_is_broken(installation: Installation, name: str) -> None:
    (installation.package / name).write_text("raise RuntimeError('broken on purpose')\n")
    for words, code in ((["-n2", "x"], 17), (["--local", "sh", "-c", "exit 5"], 5)):
        done = installation.run(*words)
        if "broken" in done.stderr:
            assert done.returncode == code
            assert done.stderr in (
                "handwash: RuntimeError: broken on purpose; running without supervision\n",
                # Met only after srun had started: it was not started twice.
                "handwash: a fault in handwash, not confirmed yet: RuntimeError: broken on purpose\n",
            )
        else:
            assert name in ("run.py", "srun/launch.py", "srun/local.py")


def test_no_srun_at_all(installation: Installation) -> None:
    done = installation.run("-n2", "x", PATH="/nonexistent")
    assert done.returncode == 125
    assert "srun was not found" in done.stderr


def test_what_an_option_may_not_do(installation: Installation) -> None:
    for words in (["--local"], ["--local", "--"], ["--async", "true"]):
        done = installation.run(*words)
        assert (done.returncode, done.stdout) == (125, ""), words
        assert done.stderr.startswith("handwash: ")


@by_either_name
def test_disabled(installation: Installation) -> None:
    done = installation.run("-n2", "x", HANDWASH_DISABLE="1")
    assert (done.returncode, done.stdout, done.stderr) == (17, "plain srun: -n2 x\n", "")
    assert installation.run("--local", "sh", "-c", "exit 3", HANDWASH_DISABLE="1").returncode == 3


@by_either_name
def test_put_before_srun_under_its_name(installation: Installation) -> None:
    """It finds the real srun behind itself, working or broken, and never itself again and again."""
    first = installation.prefix / "first"
    first.mkdir()
    (first / installation.srun).symlink_to(installation.wrapper)
    installation.env["PATH"] = f"{first}:{installation.env['PATH']}"
    done = installation.run("-n2", "x", wrapper=first / installation.srun, HANDWASH_DISABLE="1")
    assert (done.returncode, done.stdout, done.stderr) == (17, "plain srun: -n2 x\n", "")
    (installation.package / "srun" / "__init__.py").write_text("(")
    installation.is_plain("SyntaxError")
    installation.console_script("#!/nowhere/python\n")
    installation.is_plain("not found")
    installation.env["PATH"] = f"{first}:{installation.rest}"
    if not shutil.which("srun", path=installation.rest):
        assert installation.run("x").returncode == 125


@by_either_name
@pytest.mark.parametrize("state", ["working", "disabled", "broken package", "no interpreter"])
@pytest.mark.parametrize("manner", ["exec", "child", "by way of another script"])
def test_a_script_named_srun_that_starts_it(installation: Installation, state: str, manner: str) -> None:
    """The real srun behind the script is found, its code comes through; without one the reason is said."""
    first = installation.prefix / "first"
    first.mkdir()
    script = first / installation.srun
    start = {
        "exec": f'exec "{installation.wrapper}" "$@"',
        "child": f'"{installation.wrapper}" "$@"\nexit $?',
        "by way of another script": f'sh -c \'"$@"; exit $?\' sh "{installation.wrapper}" "$@"\nexit $?',
    }[manner]
    count = installation.prefix / "count"
    script.write_text(f'#!/bin/sh\necho >>"{count}"\n[ "$(wc -l <"{count}")" -lt 9 ] || exit 99\n{start}\n')
    script.chmod(0o755)
    installation.env["PATH"] = f"{first}:{installation.env['PATH']}"
    env = {"HANDWASH_DISABLE": "1"} if state == "disabled" else {}
    if state == "broken package":
        (installation.package / "srun" / "__init__.py").write_text("(")
    elif state == "no interpreter":
        installation.console_script("#!/nowhere/python\n")
    done = installation.run("-n2", "--version", **env)
    assert (done.returncode, done.stdout) == (17, "plain srun: -n2 --version\n"), done.stderr
    assert count.read_text() == "\n"
    count.unlink()
    # The script itself is asked for: the same.
    done = installation.run("-n2", "--version", wrapper=script, **env)
    assert (done.returncode, done.stdout) == (17, "plain srun: -n2 --version\n"), done.stderr
    count.unlink()
    installation.env["PATH"] = f"{first}:{installation.rest}"
    if not shutil.which("srun", path=installation.rest):
        done = installation.run("-n2", "--version", **env)
        assert done.returncode == 125 and "srun" in done.stderr


@by_either_name
def test_the_real_one_starts_programs_too(installation: Installation) -> None:
    """It is no script that goes round in a circle: what it starts finds it again."""
    real = installation.prefix / "fake" / installation.srun
    shutil.copy("/bin/bash", real)
    mark = f"{os.uname().nodename} {os.getpid()} {real}"
    code = f"'{installation.wrapper}' -c 'echo inner; exit 5'; exit $?"
    done = installation.run("-c", code, wrapper=real, HANDWASH_SRUN=mark, HANDWASH_DISABLE="1")
    assert (done.returncode, done.stdout, done.stderr) == (5, "inner\n", "")


def test_a_name_that_only_the_settings_know(tmp_path: Path, without_srun: str) -> None:
    """Working, and switched off by the variable, which else reads no file."""
    installation = Installation(tmp_path / "a prefix", "run-it", without_srun)
    settings = installation.prefix / ".config" / "handwash" / "handwash.toml"
    assert "srun was not found" in installation.run("-n2", "--version").stderr
    settings.parent.mkdir(parents=True)
    settings.write_text('slurm_names = "srun=run-it"')
    for env in ({}, {"HANDWASH_DISABLE": "1"}, {"HANDWASH_CONFIG": "/dev/null", "HANDWASH_SLURM_NAMES": "srun=run-it"}):
        done = installation.run("-n2", "--version", **env)
        assert (done.returncode, done.stdout, done.stderr) == (17, "plain srun: -n2 --version\n", ""), env
    (installation.package / "srun" / "launch.py").write_text("(")
    done = installation.run("-n2", "x")
    assert (done.returncode, done.stdout) == (17, "plain srun: -n2 x\n") and "SyntaxError" in done.stderr


def test_disabled_with_another_srun_on_path(installation: Installation) -> None:
    """The name that the environment gives comes first then, too; a settings file is not read."""
    other = installation.prefix / "fake" / "run-it"
    other.write_text('#!/bin/sh\necho "run-it: $*"\n')
    other.chmod(0o755)
    settings = installation.prefix / ".config" / "handwash" / "handwash.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('slurm_names = "srun=run-it"')
    disabled = {"HANDWASH_DISABLE": "1"}
    assert installation.run("-n2", "x", **disabled).stdout == "plain srun: -n2 x\n"
    for names, said in (("srun=run-it", "run-it: -n2 x\n"), ("srun=gone", "plain srun: -n2 x\n"), ("a b", None)):
        done = installation.run("-n2", "x", **disabled, HANDWASH_SLURM_NAMES=names)
        assert (done.stdout, done.stderr) == (said or "plain srun: -n2 x\n", ""), names
    # Not switched off, both count; what the site calls the others goes to the nodes.
    done = installation.run("-n2", "x", HANDWASH_SLURM_NAMES="srun=run-it scancel=jobs-stop")
    assert done.stdout.startswith("run-it: -n2 ") and "\tsrun=run-it scancel=jobs-stop" in done.stdout, done


@pytest.mark.parametrize("by", ["environment", "settings"])
def test_without_srun_the_scheduler_that_is_set_is_named(tmp_path: Path, without_srun: str, by: str) -> None:
    installation = Installation(tmp_path / "a prefix", "no-srun", without_srun)
    if by == "settings":
        settings = installation.prefix / ".config" / "handwash" / "handwash.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text('scheduler = "pbs"')
    conf = installation.prefix / "slurm.conf"
    conf.touch()
    env = {"SLURM_CONF": str(conf), **({"HANDWASH_SCHEDULER": "pbs"} if by == "environment" else {})}
    done = installation.run("-n2", "x", **env)
    assert done.returncode == 125 and "PBS has no srun" in done.stderr, done
    assert "srun was not found" in installation.run("-n2", "x", **{**env, "HANDWASH_SCHEDULER": "slurm"}).stderr


def test_it_is_started_by_its_own_name(tmp_path: Path, without_srun: str) -> None:
    """What it calls itself in its complaints is what the person would have read without handwash."""
    installation = Installation(tmp_path / "a prefix", "yhrun", without_srun)
    program = installation.prefix / "fake" / "yhrun"
    program.unlink()
    program.symlink_to("/bin/bash")
    done = installation.run("/nonexistent/x", HANDWASH_DISABLE="1")
    assert done.returncode == 127 and done.stderr.startswith("yhrun: "), done


def test_exported_functions_pass_through(installation: Installation) -> None:
    """dash would drop them; no other variable appears."""
    for variables in (
        {"BASH_FUNC_f%%": '() {  echo "a b"\n}', "a.b": "c", "PS1": "> ", "python": "2", "lib": "x"},
        {"SHLVL": "3"},
        {},
    ):
        done = installation.run("--local", "/usr/bin/env", "-0", **variables)
        found = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)
        assert {name: found.get(name) for name in variables} == variables
        assert found.keys() - {"HANDWASH_SESSION", "PWD", "_"} == installation.env.keys() | variables.keys()


def test_the_wrapper_is_executable_and_starts_nothing_on_its_way() -> None:
    assert os.access(WRAPPER, os.X_OK)
    text = WRAPPER.read_text()
    # Until the exec of a plain installation: only built-in words.
    assert "$(" not in text.split("elif [ -r", 1)[1].split("if [ -x", 1)[0]
