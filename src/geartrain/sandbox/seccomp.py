"""The system calls that sandboxed code may make, as a program for the kernel's filter (seccomp, classic BPF).

An allow list: what is not here fails with EPERM, as what a newer kernel brings will. Numbers are of asm/unistd_64.h and
asm-generic/unistd.h.
"""

import errno
import platform
import struct
from dataclasses import dataclass

ALLOW, KILL_PROCESS, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_MOST_JUMP = 255


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""Machine -> AUDIT_ARCH_… of linux/audit.h."""
_ALWAYS = """
read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, lseek 8 62, close 3 57, dup 32 23,
dup2 33 -, dup3 292 24, poll 7 -, ppoll 271 73, select 23 -, pselect6 270 72, getdents64 217 61, ftruncate 77 46,
fsync 74 82, fdatasync 75 83, getcwd 79 17,
fstat 5 80, newfstatat 262 79, stat 4 -, lstat 6 -,
mmap 9 222, munmap 11 215, mprotect 10 226, mremap 25 216, madvise 28 233, brk 12 214, futex 202 98,
sched_yield 24 124, nanosleep 35 101, clock_nanosleep 230 115, restart_syscall 219 128, rt_sigaction 13 134,
rt_sigprocmask 14 135, rt_sigreturn 15 139, sigaltstack 131 132, exit 60 93, exit_group 231 94,
clock_gettime 228 113, clock_getres 229 114, gettimeofday 96 169, time 201 -, getrandom 318 278, getpid 39 172,
gettid 186 178, getppid 110 173, getuid 102 174, geteuid 107 175, getgid 104 176, getegid 108 177, uname 63 160,
sched_getaffinity 204 123, getrusage 98 165, times 100 153, getrlimit 97 163,
"""
ALWAYS: dict[str, tuple[int | None, int | None]] = {
    name: (_number(x86), _number(arm)) for name, x86, arm in map(str.split, filter(str.strip, _ALWAYS.split(",")))
}
"""Call -> its number on x86_64 and aarch64; None: there is none. They are for the descriptors that it has; what is said
of files, in which Landlock has no say; memory, waiting, its own signals; what it may know."""
ABSENT = {"clone3": (435, 435), "openat2": (437, 437), "statx": (332, 291), "faccessat2": (439, 439)}
"""Calls whose arguments a filter cannot see, or that are newer than libc needs: it does without where there is none."""


@dataclass(frozen=True)
class Condition:
    """An argument of a call that decides: by its low half, since what is meant here has 32 bits."""

    name: str
    numbers: tuple[int | None, int | None]
    argument: int
    values: tuple[int, ...] = ()
    """The call is let through with one of these."""
    bits: int = 0
    """The call is let through without any of these."""


CONDITIONS = (
    # TCGETS, TIOCGWINSZ (is it a terminal?), FIONCLEX, FIOCLEX
    Condition("ioctl", (16, 29), 1, values=(0x5401, 0x5413, 0x5450, 0x5451)),
    # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC: no locks, no owner to whom signals go
    Condition("fcntl", (72, 25), 1, values=(0, 1, 2, 3, 4, 1030)),
    # O_PATH and O_TMPFILE: a file that nobody sees cannot be counted
    Condition("openat", (257, 56), 2, bits=0o30000000),
    Condition("open", (2, None), 1, bits=0o30000000),
)
READ_LIMITS = ("prlimit64", (302, 261))
"""Let through where it sets nothing: its third argument is NULL."""

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, constant: struct sock_filter."""
_REFUSE: Instruction = (_RETURN, 0, 0, ERRNO | errno.EPERM)


def supported() -> bool:
    """Return whether there is a table for this machine."""
    return platform.machine() in ARCHITECTURES


def program(machine: str) -> list[Instruction]:
    """Return the filter for `x86_64` or `aarch64`.

    It halves the numbers until one action is left: the kernel runs a new filter over every number there is, so a list
    of tests is slow to take on. Numbers of x32 are above all others, and refused.
    """
    column = list(ARCHITECTURES).index(machine)
    actions: dict[int, list[Instruction]] = {}
    for table, action in ((ALWAYS, ALLOW), (ABSENT, ERRNO | errno.ENOSYS)):
        for numbers in table.values():
            if (number := numbers[column]) is not None:
                actions[number] = [(_RETURN, 0, 0, action)]
    for condition in CONDITIONS:
        if (number := condition.numbers[column]) is not None:
            actions[number] = _condition(condition)
    null = [(_LOAD, 0, 0, _ARGUMENTS + 16), (_EQUAL, 0, 3, 0), (_LOAD, 0, 0, _ARGUMENTS + 20), (_EQUAL, 0, 1, 0)]
    actions[READ_LIMITS[1][column]] = [*null, (_RETURN, 0, 0, ALLOW), _REFUSE]
    return [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, ARCHITECTURES[machine]),
        (_RETURN, 0, 0, KILL_PROCESS),  # calls of 32 bits have other numbers
        (_LOAD, 0, 0, _NUMBER),
        *_halved(_ranges(actions)),
    ]


def packed(instructions: list[Instruction]) -> bytes:
    """Return the program as the kernel reads it."""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


def _ranges(actions: dict[int, list[Instruction]]) -> list[tuple[int, list[Instruction]]]:
    """Return the first number of each range -> what decides for all in it; ranges leave no gap."""
    ranges: list[tuple[int, list[Instruction]]] = [(0, [_REFUSE])]
    for number in sorted({border for known in actions for border in (known, known + 1)}):
        action = actions.get(number, [_REFUSE])
        if action != ranges[-1][1]:
            ranges.append((number, action))
    return ranges[1:] if 0 in actions else ranges


def _halved(ranges: list[tuple[int, list[Instruction]]]) -> list[Instruction]:
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    below, above = _halved(ranges[:middle]), _halved(ranges[middle:])
    assert len(below) <= _MOST_JUMP
    return [(_AT_LEAST, len(below), 0, ranges[middle][0]), *below, *above]


def _condition(condition: Condition) -> list[Instruction]:
    load = (_LOAD, 0, 0, _ARGUMENTS + 8 * condition.argument)
    allow = (_RETURN, 0, 0, ALLOW)
    if condition.bits:
        return [load, (_ANY_BIT, 1, 0, condition.bits), allow, _REFUSE]
    count = len(condition.values)
    tests = [(_EQUAL, count - index, 0, value) for index, value in enumerate(condition.values)]
    return [load, *tests, _REFUSE, allow]
