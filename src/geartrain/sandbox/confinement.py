"""What a process takes from itself before it runs code that nobody has vouched for."""

import ctypes
import os
import platform
import resource
import signal
import struct
from contextlib import suppress
from pathlib import Path

from geartrain.sandbox import landlock, seccomp

NOBODY = 65534
"""Whom a zygote that was started by root becomes."""
OPEN_FILES = 64
_PDEATHSIG, _DUMPABLE, _SECCOMP, _SUBREAPER, _NO_NEW_PRIVS = 1, 4, 22, 36, 38
_FILTER = 2
_CAPABILITIES = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)


class UnconfinedError(Exception):
    """This process cannot be confined; the message says what is missing, and what to do."""


def become_nobody(folder: Path) -> None:
    """Give up root, every capability and every way to regain them; the folder goes to whom this process becomes.

    Raises:
        UnconfinedError: this is root, and the kernel does not let it become anybody else.
    """
    if os.geteuid() == 0:
        try:
            os.chown(folder, NOBODY, NOBODY)
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        except PermissionError as error:
            problem = "this process is root, but may not become another user (no CAP_SETUID, CAP_SETGID or CAP_CHOWN)"
            raise UnconfinedError(f"{problem}: run it as one, on a cluster with runAsUser: 65532") from error
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITIES, 0))
    if _libc.capset(header, bytes(24)) != 0:
        raise UnconfinedError(f"capabilities cannot be given up: {os.strerror(ctypes.get_errno())}")
    _prctl(_NO_NEW_PRIVS, 1)


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends."""
    _prctl(_SUBREAPER, 1)


class Confinement:
    """The rules for every run of one zygote: made once, taken on by each fork."""

    def __init__(self, folder: Path) -> None:
        """Make them.

        Args:
            folder: the only one that a run may read and write; files cannot be removed from it, so that each is seen.

        Raises:
            UnconfinedError: the kernel lacks something.
        """
        self.abi = landlock.abi()
        if not self.abi:
            raise UnconfinedError(landlock.missing())
        if not seccomp.supported():
            known = ", ".join(seccomp.ARCHITECTURES)
            raise UnconfinedError(f"no table of system calls for {platform.machine()}; there is one for {known}")
        file_rights = landlock.READ_FILE | landlock.WRITE_FILE | landlock.TRUNCATE
        folder_rights = file_rights | landlock.READ_DIR | landlock.MAKE_REGULAR
        allowed = {
            os.open(folder, os.O_PATH | os.O_CLOEXEC): folder_rights,
            os.open(os.devnull, os.O_PATH | os.O_CLOEXEC): file_rights,
        }
        try:
            self._rules = landlock.ruleset(self.abi, allowed)
        except landlock.LandlockError as error:
            raise UnconfinedError(f"{error}; {landlock.missing()}") from error
        for descriptor in allowed:
            os.close(descriptor)
        text = seccomp.packed(seccomp.program(platform.machine()))
        self._text = ctypes.create_string_buffer(text, len(text))
        self._filter = struct.pack("@HP", len(text) // 8, ctypes.addressof(self._text))

    def take_on(self, *, memory_bytes: int, cpu_seconds: int, file_bytes: int) -> None:
        """Confine this process, for good. It can still use the descriptors that it has.

        Args:
            memory_bytes: address space in all.
            cpu_seconds: then it is killed.
            file_bytes: of one file.

        Raises:
            OSError: the kernel refused; nothing may be run then.
        """
        _prctl(_PDEATHSIG, signal.SIGKILL)
        _prctl(_DUMPABLE, 0)
        limits = {
            resource.RLIMIT_CPU: cpu_seconds,
            resource.RLIMIT_AS: memory_bytes,
            resource.RLIMIT_FSIZE: file_bytes,
            resource.RLIMIT_NPROC: 0,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_MEMLOCK: 0,
        }
        for limit, wanted in limits.items():
            most = resource.getrlimit(limit)[1]
            lower = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
            resource.setrlimit(limit, (lower, lower))
        landlock.restrict(self._rules)
        _prctl(_SECCOMP, _FILTER, self._filter)


def address_space() -> int:
    """Return the bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def limit_open_files() -> None:
    """Hold this process, and what it starts, to few descriptors."""
    with suppress(ValueError):  # it has fewer already
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))


def _prctl(option: int, *arguments: "int | bytes") -> None:
    values = [argument if isinstance(argument, bytes) else ctypes.c_ulong(argument) for argument in arguments]
    rest = [ctypes.c_ulong(0)] * (4 - len(values))
    if _libc.prctl(option, *values, *rest) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")
