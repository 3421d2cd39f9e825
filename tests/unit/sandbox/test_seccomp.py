"""The filter of system calls, run by a small machine of our own, so that the table of the other one is tested too."""

import errno
import struct

import pytest

from geartrain.sandbox import seccomp

MACHINES = list(seccomp.ARCHITECTURES)
_NUMBERS = """
socket 41 198, connect 42 203, sendmsg 46 211, recvmsg 47 212, socketpair 53 199, clone 56 220, execve 59 221,
execveat 322 281, kill 62 129, tgkill 234 131, ptrace 101 117, process_vm_readv 310 270, pidfd_open 434 434,
setuid 105 146, mount 165 40, unshare 272 97, setns 308 268, bpf 321 280, keyctl 250 219, io_uring_setup 425 425,
userfaultfd 323 282, open_by_handle_at 304 265, prctl 157 167, fchmod 91 52, fchmodat 268 53, fchown 93 55,
utimensat 280 88, fsetxattr 190 7, memfd_create 319 279, seccomp 317 277, unlinkat 263 35, chdir 80 49,
setpriority 141 140, perf_event_open 298 241, inotify_init1 294 26, eventfd2 290 19, truncate 76 45,
"""
NUMBERS = {name: (int(x86), int(arm)) for name, x86, arm in map(str.split, _NUMBERS.strip().strip(",").split(","))}
"""Some calls that no table of ours may ever let through, by asm/unistd_64.h and asm-generic/unistd.h."""


def verdict(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """Run the filter as the kernel does."""
    data = struct.pack("=IIQ", number, architecture or seccomp.ARCHITECTURES[machine], 0)
    data += struct.pack("=6Q", *(*arguments, *[0] * (6 - len(arguments))))
    lines, place, accumulator = seccomp.program(machine), 0, 0
    while True:
        code, true, false, constant = lines[place]
        place += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, constant)
            case 0x06:
                return constant
            case _:
                holds = {
                    0x15: accumulator == constant,
                    0x35: accumulator >= constant,
                    0x45: bool(accumulator & constant),
                }
                place += true if holds[code] else false


REFUSED = seccomp.ERRNO | errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_not_in_the_table_is_refused(machine: str) -> None:
    column = MACHINES.index(machine)
    special = [seccomp.READ_LIMITS[1][column], *[condition.numbers[column] for condition in seccomp.CONDITIONS]]
    allowed = {numbers[column] for numbers in seccomp.ALWAYS.values()} - {None}
    absent = {numbers[column] for numbers in seccomp.ABSENT.values()}
    for number in [*range(1000), *range(0x40000000, 0x40000400), 2**32 - 1]:
        if number not in special:
            expected = seccomp.ALLOW if number in allowed else REFUSED
            assert verdict(machine, number) == (seccomp.ERRNO | errno.ENOSYS if number in absent else expected), number


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", NUMBERS)
def test_dangerous_calls_are_refused(name: str, machine: str) -> None:
    assert verdict(machine, NUMBERS[name][MACHINES.index(machine)], 0, 0, 0) == REFUSED


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_of_another_architecture_end_the_process(machine: str) -> None:
    assert verdict(machine, 0, architecture=0x40000003) == seccomp.KILL_PROCESS


@pytest.mark.parametrize("machine", MACHINES)
def test_arguments_decide_where_they_must(machine: str) -> None:
    column = MACHINES.index(machine)
    numbers = {condition.name: condition.numbers[column] for condition in seccomp.CONDITIONS}
    assert verdict(machine, numbers["openat"], 0, 0, 0o101) == seccomp.ALLOW
    for flags in (0o20200000 | 2, 0o10000000):  # O_TMPFILE, O_PATH
        assert verdict(machine, numbers["openat"], 0, 0, flags) == REFUSED
    assert {command for command in range(2000) if verdict(machine, numbers["fcntl"], 3, command) == seccomp.ALLOW} == {
        *range(5),
        1030,
    }
    assert verdict(machine, numbers["ioctl"], 0, 0x5401) == seccomp.ALLOW
    assert verdict(machine, numbers["ioctl"], 0, 0x5412) == REFUSED  # TIOCSTI: it types for its parent
    limits = seccomp.READ_LIMITS[1][column]
    assert verdict(machine, limits, 0, 7, 0) == seccomp.ALLOW
    assert {verdict(machine, limits, 0, 7, new) for new in (1, 1 << 32, 2**64 - 1)} == {REFUSED}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_kernel_can_read_it(machine: str) -> None:
    program = seccomp.program(machine)
    assert len(seccomp.packed(program)) == 8 * len(program)
    assert len(program) < 4096
    for table in (seccomp.ALWAYS, seccomp.ABSENT):
        numbers = [
            pair[MACHINES.index(machine)] for pair in table.values() if pair[MACHINES.index(machine)] is not None
        ]
        assert len(numbers) == len(set(numbers))
