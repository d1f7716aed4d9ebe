"""What is in the wheel, and that what is installed from it, or from a checkout, works where a person has put it."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = "handwash/messages/locale/zh_CN/LC_MESSAGES/handwash"
MAN_PAGES = (
    *("man1/handwash.1", "man1/safe-srun.1", "man5/handwash.toml.5"),
    *("zh_CN/man1/handwash.1", "zh_CN/man5/handwash.toml.5"),
)


def run(*argv: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A program in a plain environment: nothing of the tests' own Python reaches it. What pip needs stays."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HANDWASH", "SLURM"))}
    return subprocess.run(
        [str(word) for word in argv],
        env={**kept, "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin", **env},
        cwd="/",
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


def must(*argv: str | Path, **env: str) -> str:
    """As `run`, and it has to succeed."""
    done = run(*argv, **env)
    assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist, and the wheel that was built from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    must(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="session")
def wheel(built: Path) -> Iterator[zipfile.ZipFile]:
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="session")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


def one_data_file(wheel: zipfile.ZipFile, kind: str, name: str) -> zipfile.ZipInfo:
    """A file that is installed beside the package: `scripts`, or `data` below the prefix."""
    (found,) = (info for info in wheel.infolist() if info.filename.endswith(f".data/{kind}/{name}"))
    return found


def test_hooks_are_in_the_package(wheel: zipfile.ZipFile) -> None:
    hooks = sorted(path.name for path in (ROOT / "shellhooks").iterdir() if path.is_file())
    assert "handwash.bash" in hooks
    for name in hooks:
        assert wheel.read(f"handwash/shellhooks/{name}") == (ROOT / "shellhooks" / name).read_bytes()


def test_the_wrapper_is_an_executable_script(wheel: zipfile.ZipFile) -> None:
    info = one_data_file(wheel, "scripts", "safe-srun")
    assert (info.external_attr >> 16) & 0o777 == 0o755
    assert wheel.read(info) == (ROOT / "wrappers" / "safe-srun").read_bytes()


def test_what_slurm_executes_is_executable(wheel: zipfile.ZipFile) -> None:
    info = wheel.getinfo("handwash/srun/prolog.sh")
    assert (info.external_attr >> 16) & 0o111 == 0o111


@pytest.mark.parametrize("page", MAN_PAGES)
def test_man_pages_are_where_man_looks(wheel: zipfile.ZipFile, page: str) -> None:
    info = one_data_file(wheel, "data", f"share/man/{page}")
    assert wheel.read(info) == (ROOT / "man" / page).read_bytes()


def test_the_catalogue_is_compiled(wheel: zipfile.ZipFile) -> None:
    assert wheel.read(f"{CATALOGUE}.mo")[:4] == b"\xde\x12\x04\x95"


def test_nothing_but_the_package_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert len(tops) == 3
    assert all(re.fullmatch(r"handwash(-[^/]+\.(dist-info|data))?", top) for top in tops), tops
    assert not [name for name in wheel.namelist() if "test" in name or name.endswith((".pyc", ".pyo"))]


def test_the_package_says_that_it_has_types_and_a_licence(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    assert "handwash/py.typed" in names
    assert [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]


def test_metadata(metadata: Message) -> None:
    assert metadata["Name"] == "handwash"
    assert metadata["Requires-Python"] == ">=3.9"
    required = [
        re.split(r"[^\w-]", line)[0] for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line
    ]
    assert sorted(required) == ["nvidia-ml-py", "platformdirs", "psutil", "rich", "shellingham", "tomli"]
    assert metadata.get_payload()  # the README


def test_the_sdist_has_what_a_person_needs_to_work_on_it(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = ("Makefile", "README.md", "CHANGELOG.md", "LICENSE", "hatch_build.py", "wrappers/safe-srun")
    assert not set(wanted) - names
    assert {"man/man1/handwash.1", "shellhooks/handwash.bash", "tests/package/test_package.py"} <= names


def fresh(folder: Path, what: str | Path, *options: str) -> Path:
    """A new environment with this installed."""
    # The base interpreter: from an environment of the tests' own, a new one would be chained to it.
    must(getattr(sys, "_base_executable", sys.executable), "-m", "venv", "--without-pip", folder)
    pip = [sys.executable, "-m", "pip", f"--python={folder}/bin/python", "--disable-pip-version-check"]
    must(*pip, "install", "--quiet", *options, what)
    return folder


@pytest.fixture(scope="session")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel with its dependencies, as a person installs it."""
    (path,) = built.glob("*.whl")
    return fresh(tmp_path_factory.mktemp("wheel") / "venv", path)


@pytest.fixture(scope="session")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout, installed to be worked on."""
    return fresh(tmp_path_factory.mktemp("editable") / "venv", ROOT, "--editable")


@pytest.fixture(params=["installed", "editable"])
def venv(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


def version() -> str:
    text = (ROOT / "src" / "handwash" / "__init__.py").read_text()
    found = re.search(r'__version__ = "(.+)"', text)
    assert found
    return found.group(1)


def test_the_command_runs(venv: Path) -> None:
    assert must(venv / "bin" / "handwash", "--version").strip() == f"handwash {version()}"


def test_it_speaks_chinese(venv: Path) -> None:
    assert "退出码" in must(venv / "bin" / "handwash", "--help", HANDWASH_LANG="zh_CN")


def test_tables_come_out(venv: Path, tmp_path: Path) -> None:
    """rich and the other dependencies are found from the interpreter that starts without site-packages."""
    with subprocess.Popen(["sleep", "100"], start_new_session=True) as sleeper:
        try:
            done = run(venv / "bin" / "handwash", "clean", "--dry-run", str(sleeper.pid), HOME=str(tmp_path))
        finally:
            sleeper.kill()
    assert re.search(rf"PID +user .*\n *{sleeper.pid} .* sleep 100 ", done.stdout), done.stdout + done.stderr


def test_the_hook_is_found(venv: Path) -> None:
    """What `handwash init bash` prints leads to the hook file of this installation."""
    shown = must(venv / "bin" / "handwash", "init", "bash")
    found = re.findall(r"/[^\s'\"]*/shellhooks/handwash\.bash", shown)
    assert found and all(Path(path).is_file() for path in found), shown


def test_safe_srun_is_on_the_path(venv: Path, tmp_path: Path) -> None:
    wrapper = venv / "bin" / "safe-srun"
    assert wrapper.stat().st_mode & 0o777 == 0o755
    done = run(wrapper, "--local", "sh", "-c", "exit 7", HOME=str(tmp_path))
    assert done.returncode == 7
    assert "without supervision" not in done.stderr


def test_what_slurm_executes_stays_executable(venv: Path) -> None:
    (found,) = must(venv / "bin" / "python", "-c", "from handwash.srun.changes import PROLOG; print(PROLOG)").split()
    assert os.access(found, os.X_OK)


def test_links_from_another_folder_work(installed: Path, tmp_path: Path) -> None:
    """pipx and `uv tool` put links into ~/.local/bin; the second link points at the first by a relative path."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "home").mkdir()
    for name in ("handwash", "safe-srun"):
        (tmp_path / "bin" / name).symlink_to(installed / "bin" / name)
        (tmp_path / name).symlink_to(Path("bin") / name)
        assert (tmp_path / name).exists()
    assert must(tmp_path / "handwash", "--version").startswith("handwash ")
    done = run(tmp_path / "safe-srun", "--local", "sh", "-c", "exit 7", HOME=str(tmp_path / "home"))
    assert done.returncode == 7
    assert "without supervision" not in done.stderr


@pytest.mark.parametrize("page", MAN_PAGES)
def test_man_pages_are_installed(venv: Path, page: str) -> None:
    assert (venv / "share" / "man" / page).read_bytes() == (ROOT / "man" / page).read_bytes()


def test_uninstalling_leaves_nothing(built: Path, tmp_path: Path) -> None:
    (path,) = built.glob("*.whl")
    folder = fresh(tmp_path / "venv", path, "--no-deps")
    must(folder / "bin" / "handwash", "--version")
    pip = [sys.executable, "-m", "pip", f"--python={folder}/bin/python", "--disable-pip-version-check"]
    must(*pip, "uninstall", "--quiet", "--yes", "handwash")
    left = [found for found in folder.rglob("*") if re.search(r"handwash|safe-srun", str(found.relative_to(folder)))]
    assert left == []
