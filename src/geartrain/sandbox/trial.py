"""What is tried in each new sandbox before any strange code is run in it: every wall once, from inside."""

from dataclasses import dataclass

from geartrain.errors import UserError
from geartrain.sandbox.outcome import Call, Failed, Limits, Value

WALLS = {
    "read": "read a file outside of its folder",
    "list": "list a folder outside of its own",
    "write": "write a file outside of its folder",
    "parent": "read the memory or the variables of its parent",
    "mode": "change the mode of a file",
    "folder": "make a folder or a link",
    "remove": "remove a file",
    "process": "start a process",
    "thread": "start a thread",
    "program": "run a program",
    "memory_file": "make a file in memory",
    "network": "open a network socket",
    "local": "open a unix socket",
    "signal": "signal another process",
    "trace": "trace another process",
    "limits": "change its limits",
    "user": "become another user",
    "namespace": "make a namespace",
    "ring": "make an io_uring",
    "import": "import what was not loaded",
}
"""Name -> what code must fail to do."""
LIMITS = Limits(seconds=30.0)
CALL = Call("attempts", [list(WALLS)])
CODE = """
import ctypes, os, resource, signal, socket, threading

libc = ctypes.CDLL(None, use_errno=True)

def checked(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), "")
    return result

def write():
    with open("../geartrain-sandbox-trial", "w"):
        pass

def parent():
    found = []
    for name in ("environ", "mem", "maps"):
        try:
            open(f"/proc/{os.getppid()}/{name}", "rb").read(1)
            found.append(name)
        except OSError:
            pass
    if not found:
        raise PermissionError(1, "")

def mode():
    with open("trial", "w") as file:
        os.fchmod(file.fileno(), 0o777)

def links():
    for make in (lambda: os.mkdir("inside"), lambda: os.symlink("/", "link"), lambda: os.link("trial", "other")):
        try:
            make()
        except OSError:
            continue
        return
    raise PermissionError(1, "")

def remove():
    open("trial", "w").close()
    os.unlink("trial")

def process():
    if os.fork() == 0:
        os._exit(0)

def limits():
    try:
        resource.setrlimit(resource.RLIMIT_CPU, resource.getrlimit(resource.RLIMIT_CPU))
    except ValueError as error:  # so it tells of EPERM
        raise PermissionError(1, "") from error

tried = {
    "read": lambda: open("/etc/passwd").close(),
    "list": lambda: os.listdir("/"),
    "write": write,
    "parent": parent,
    "mode": mode,
    "folder": links,
    "remove": remove,
    "process": process,
    "thread": lambda: threading.Thread(target=int).start(),
    "program": lambda: os.execv("/bin/true", ["true"]),
    "memory_file": lambda: os.memfd_create("x"),
    "network": lambda: socket.socket(socket.AF_INET),
    "local": lambda: socket.socketpair(),
    "signal": lambda: os.kill(os.getppid(), 0),
    "trace": lambda: checked(libc.ptrace(16, os.getppid(), None, None)),
    "limits": limits,
    "user": lambda: os.setuid(0),
    "namespace": lambda: checked(libc.unshare(0x10000000)),
    "ring": lambda: checked(libc.syscall(425, 1, ctypes.create_string_buffer(256))),
    "import": lambda: __import__("antigravity"),
}

def attempts(names):
    done = {}
    for name in names:
        try:
            tried[name]()
        except (OSError, RuntimeError, ImportError) as error:
            done[name] = type(error).__name__
        else:
            done[name] = None
    return done
"""


@dataclass(frozen=True)
class Finding:
    """One wall."""

    name: str
    means: str
    """What code must fail to do."""
    how: str | None
    """The error it failed with; None: it did not fail."""


def findings(answer: Value | Failed) -> list[Finding]:
    """Return what the trial said of each wall.

    Raises:
        UserError: it did not come to an end.
    """
    if isinstance(answer, Failed):
        raise UserError(f"no sandbox on this machine: its trial failed ({answer.reason}: {answer.detail})")
    return [Finding(name, means, answer.data[name]) for name, means in WALLS.items()]


def check(found: list[Finding]) -> None:
    """Raise unless every wall held.

    Raises:
        UserError: code could do what it must not.
    """
    open_walls = [finding.means for finding in found if finding.how is None]
    if open_walls:
        raise UserError(f"no sandbox on this machine: code in it could {'; '.join(open_walls)}. Please report this.")
