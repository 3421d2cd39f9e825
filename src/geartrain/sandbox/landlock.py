"""Landlock by its three system calls: a process gives up files, TCP and signals beyond what its rules name.

Rights and structures are those of linux/landlock.h; each version of the interface (ABI) can take away more.
"""

import ctypes
import os
import platform
import struct
from collections.abc import Mapping

WRITE_FILE, READ_FILE, READ_DIR, MAKE_REGULAR, TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 8, 1 << 14
_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # the same on every architecture
_ASK_VERSION, _PATH_BENEATH = 1, 1
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""ABI -> how many rights over files it knows; they are bits from 0."""
_TCP, _SCOPES = 0b11, 0b11  # bind and connect (ABI 4); abstract unix sockets and signals (ABI 6)
_libc = ctypes.CDLL(None, use_errno=True)


class LandlockError(OSError):
    """The kernel refused."""


def abi() -> int:
    """Return the version of the interface that this kernel has; 0: none, or it is off."""
    version: int = _libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(_ASK_VERSION))
    return max(0, version)


def missing() -> str:
    """Return what to do where there is no Landlock."""
    return (
        f"this kernel ({platform.release()}) offers no Landlock: it takes Linux 5.13 or newer, `landlock` in the list"
        " of the boot parameter lsm=, and a container runtime whose seccomp profile lets its calls through"
        " (containerd's and Docker's own do; gVisor has none)"
    )


def ruleset(version: int, allowed: Mapping[int, int]) -> int:
    """Return a descriptor of rules: everything that this version can take is taken, but the rights that are named.

    Args:
        version: as `abi` says.
        allowed: descriptor of a folder or file -> rights below it.

    Raises:
        LandlockError: the kernel refused.
    """
    rights = (1 << _FILE_RIGHTS.get(version, _FILE_RIGHTS[5])) - 1
    attributes = struct.pack("=QQQ", rights, _TCP, _SCOPES)[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = _checked(_libc.syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0)))
    for descriptor, granted in allowed.items():
        rule = struct.pack("=Qi", granted & rights, descriptor)
        _checked(_libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, rule, ctypes.c_uint(0)))
    return rules


def restrict(rules: int) -> None:
    """Hold this process to the rules, for good. It must have no_new_privs.

    Raises:
        LandlockError: the kernel refused.
    """
    _checked(_libc.syscall(_RESTRICT, rules, ctypes.c_uint(0)))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise LandlockError(number, f"Landlock: {os.strerror(number)}")
    return result
