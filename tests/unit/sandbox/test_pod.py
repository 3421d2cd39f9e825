"""Where it has to work, and where it must not: an unprivileged pod; machines that lack what confines."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import geartrain
from tests.unit.sandbox.attempts import REFUSED

HERE = Path(__file__).parent
USER = 65532
ROOT = os.geteuid() == 0

RUNTIME_DEFAULT = """
import ctypes, errno, platform, struct
def refuse(*rules):
    "Install a filter: rules are (number, argument or None, bits, error)."
    lines = [(0x20, 0, 0, 0)]
    for number, argument, bits, error in rules:
        body = [(0x06, 0, 0, 0x50000 | error)]
        if argument is not None:
            body = [(0x20, 0, 0, 16 + 8 * argument), (0x45, 0, 1, bits), *body, (0x06, 0, 0, 0x7FFF0000)]
        lines += [(0x15, 0, len(body), number), *body]
    lines.append((0x06, 0, 0, 0x7FFF0000))
    text = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)
    assert libc.prctl(22, 2, struct.pack("@HP", len(lines), ctypes.addressof(text)), 0, 0) == 0, ctypes.get_errno()
X86 = platform.machine() == "x86_64"
"""
POD = f"""
import json, os, sys
{RUNTIME_DEFAULT}
new = 0x7E020000  # CLONE_NEW…
names = [(272, 97), (308, 268), (165, 40), (166, 39), (321, 280), (298, 241), (323, 282), (155, 41), (250, 219)]
refuse(*[(pair[not X86], None, 0, errno.EPERM) for pair in names], ((56, 220)[not X86], 0, new, errno.EPERM),
       (435, None, 0, errno.ENOSYS))
sys.path.insert(0, sys.argv[1])
from attempts import ENDINGS, PRELUDE, REFUSED
from geartrain.sandbox.outcome import Call, Failed, Limits
from geartrain.sandbox.supervisor import Sandbox
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
told = {{"uid": os.getuid(), "capabilities": int(status["CapEff"], 16), "seccomp": status["Seccomp"], "open": {{}}}}
given = {{"folder": sys.argv[1], "file": sys.argv[1] + "/attempts.py", "victim": os.getppid(), "parent": os.getpid(),
         "port": 9, "unix": "none", "abstract": "none", "scratches": ["/tmp"]}}
with Sandbox() as sandbox:
    told["abi"] = sandbox.abi
    told["walls"] = [finding.name for finding in sandbox.findings if finding.how is None]
    for name, attempt in REFUSED.items():
        code = PRELUDE + "\\ndef attempt(given):\\n return " + attempt
        answer = sandbox.run(code, [Call("attempt", [given])]).answers[0]
        if isinstance(answer, Failed) or answer.data != []:
            told["open"][name] = repr(answer)
    for name in ("infinite_loop", "memory_bomb", "fork_bomb", "exit_of_the_process", "one_large_file"):
        code = PRELUDE + "\\ndef attempt(given):\\n " + ENDINGS[name].body
        failed = sandbox.run(code, [Call("attempt", [given])], ENDINGS[name].allowed()).failed
        if failed is None or failed.reason not in ENDINGS[name].reasons:
            told["open"][name] = repr(failed)
    told["answer"] = sandbox.run("def add(a, b): return a + b", [Call("add", [20, 22])]).values
    told["folder"] = str(sandbox._zygote.folder)
print(json.dumps(told))
"""


@pytest.fixture
def place() -> Generator[Path]:
    """A copy of the package that another user may read: all that it needs of geartrain."""
    folder = Path(tempfile.mkdtemp())
    source = Path(geartrain.__file__).parent
    (folder / "geartrain").mkdir()
    for name in ("__init__.py", "errors.py"):
        shutil.copy(source / name, folder / "geartrain")
    shutil.copytree(source / "sandbox", folder / "geartrain/sandbox", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HERE / "attempts.py", folder)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    yield folder
    shutil.rmtree(folder)


def _as_in_a_pod() -> list[str]:
    """Return what starts Python as the restricted profile has it: another user, no capability, nothing to regain."""
    privileges = ["--no-new-privs"]
    if ROOT:
        privileges += [f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
    for python in (
        sys.executable,
        os.path.realpath(sys.executable),
        "/usr/bin/python3.11",
        "/usr/local/bin/python3.11",
    ):
        command = ["setpriv", *privileges, python]
        again = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import ctypes'], check=True)"
        if subprocess.run([*command, "-c", again], capture_output=True, check=False, env={}).returncode == 0:
            return command
    pytest.skip(f"no Python that user {USER} may run")


def test_it_holds_in_an_unprivileged_pod(place: Path) -> None:
    done = subprocess.run([*_as_in_a_pod(), "-c", POD, str(place)], capture_output=True, text=True, check=False, env={})
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told.pop("abi") > 0
    assert not Path(told.pop("folder")).exists()
    expected = {"capabilities": 0, "seccomp": "2", "open": {}, "walls": [], "answer": [42]}
    assert told == {"uid": USER if ROOT else os.getuid(), **expected}
    assert len(REFUSED) > 50


LACKING = {
    "no_landlock": ("(444, None, 0, errno.ENOSYS)", "offers no Landlock: it takes Linux 5.13 or newer, `landlock` in"),
    "landlock_off_at_boot": ("(444, None, 0, errno.EOPNOTSUPP)", "offers no Landlock"),
    "landlock_refused": ("(446, None, 0, errno.EPERM)", "Landlock: Operation not permitted"),
    "rules_refused": ("(445, None, 0, errno.EPERM)", "Landlock: Operation not permitted"),
    "no_seccomp": ("((157, 167)[not X86], 0, 16, errno.EINVAL)", "prctl(22): Invalid argument"),
}


@pytest.mark.parametrize("name", LACKING)
def test_no_code_runs_where_something_is_missing(name: str) -> None:
    rule, said = LACKING[name]
    # prctl(22, …) installs a filter; of the options in use only 22 and 38's like have bit 16
    script = f"{RUNTIME_DEFAULT}\nimport os, sys\nrefuse({rule})\n"
    script += "os.execv(sys.executable, [sys.executable, '-m', 'geartrain', 'sandbox', 'check'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: no sandbox on this machine: ")
    assert said in done.stderr
    assert "cannot" not in done.stdout


@pytest.mark.skipif(not ROOT, reason="only root can be a root that may not become another user")
def test_a_root_that_may_not_become_another_user_is_told_to_be_one() -> None:
    command = [
        "setpriv",
        "--bounding-set=-all",
        "--inh-caps=-all",
        sys.executable,
        "-m",
        "geartrain",
        "sandbox",
        "check",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "runAsUser: 65532" in done.stderr


def test_the_command_says_what_is_stopped() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "geartrain", "sandbox", "check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("kernel ")
    assert lines[-1] == "code can be confined on this machine"
    assert sum(line.startswith("  cannot ") for line in lines) == 20
