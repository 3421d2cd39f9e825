"""Ways out of the sandbox, as code that tries them: what is refused, what ends the run, what forges."""

from dataclasses import dataclass, replace

from geartrain.sandbox.outcome import Limits

PRELUDE = """
import ctypes, errno, os, signal, socket, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
ARM = os.uname().machine == "aarch64"

def call(x86, arm, *arguments):
    "Make a system call by its number."
    ctypes.set_errno(0)
    result = libc.syscall(arm if ARM else x86, *arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def c(name, *arguments):
    "Call a function of libc."
    ctypes.set_errno(0)
    result = getattr(libc, name)(*arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def done(*works):
    "Return the numbers of those that were not refused."
    found = []
    for index, work in enumerate(works):
        try:
            work()
        except (OSError, RuntimeError, ValueError, ImportError):
            continue
        found.append(index)
    return found
"""

QUICK = Limits(seconds=0.2, disk_bytes=1 << 20, files=20, memory_bytes=128 << 20)
PATIENT = replace(QUICK, seconds=60.0)
"""For what ends of another cause than time, however busy the machine."""

REFUSED = {
    # processes and programs
    "fork": "done(os.fork, os.forkpty)",
    "fork_by_libc": "done(lambda: c('fork'), lambda: c('vfork'))",
    "clone": "done(lambda: call(56, 220, 17, 0, 0, 0, 0), lambda: call(56, 220, 0x10900, 0, 0, 0, 0))",
    "clone3": "done(lambda: call(435, 435, ctypes.create_string_buffer(88), 88))",
    "subprocess": "done(lambda: subprocess.run(['true']), lambda: os.posix_spawn('/bin/true', ['true'], {}))",
    "system": "[] if os.system('true') != 0 else ['ran']",
    "multiprocessing": "done(lambda: __import__('multiprocessing').Pool(2))",
    "execve": "done(lambda: os.execve('/bin/true', ['true'], {}), lambda: os.execv(sys.executable, ['python']))",
    "memory_file_and_execute": "done(lambda: os.execve(os.memfd_create('x'), ['x'], {}), lambda: os.memfd_create('x'))",
    "secret_memory": "done(lambda: call(447, 447, 0))",
    "thread": "done(lambda: threading.Thread(target=time.sleep, args=[100]).start())",
    # files
    "read_files": "done(lambda: open('/etc/passwd'), lambda: open(given['file']), lambda: open(sys.executable, 'rb'))",
    "read_libraries": "done(lambda: open(os.__file__), lambda: os.listdir(os.path.dirname(os.__file__)))",
    "list_folders": "done(lambda: os.listdir('/'), lambda: os.listdir('..'), lambda: os.listdir('/proc'))",
    "write_outside": "done(lambda: open(given['folder'] + '/new', 'w'), lambda: open('../new', 'w'),"
    " lambda: open(given['file'], 'a'), lambda: open(given['file'], 'r+'))",
    "truncate": "done(lambda: os.truncate(given['file'], 0), lambda: os.open(given['file'], os.O_TRUNC))",
    "symlink_out": "done(lambda: os.symlink(given['file'], 'link'), lambda: open('link').read())",
    "hard_link_out": "done(lambda: os.link(given['file'], 'link'), lambda: open('link').read())",
    "rename_and_remove": "done(lambda: os.rename(given['file'], 'file'), lambda: os.unlink(given['file']),"
    " lambda: os.replace('/etc/hostname', 'name'), lambda: os.rmdir(given['folder']))",
    "special_files": "done(lambda: os.mkfifo('f'), lambda: os.mknod('n', 0o20666, os.makedev(1, 1)),"
    " lambda: os.mkdir('d'),"
    " lambda: socket.socket(socket.AF_UNIX).bind('s'))",
    "hidden_file": "done(lambda: os.open('.', os.O_TMPFILE | os.O_RDWR), lambda: os.unlink('own'))"
    " if open('own', 'w') else None",
    "by_descriptor_of_a_path": "done(lambda: os.open(given['file'], os.O_PATH))",
    "openat2": "done(lambda: call(437, 437, -100, given['file'].encode(), bytes(24), 24))",
    "mode": "done(lambda: os.chmod(given['file'], 0), lambda: os.chmod('.', 0o777), lambda: os.fchmod(0, 0o777),"
    " lambda: call(452, 452, -100, given['file'].encode(), 0, 0))",
    "owner": "done(lambda: os.chown(given['file'], os.getuid(), os.getgid()), lambda: os.lchown('.', 0, 0))",
    "times": "done(lambda: os.utime(given['file'], (0, 0)), lambda: os.utime('.', (0, 0)))",
    "attributes": "done(lambda: os.setxattr(given['file'], 'user.x', b'1'),"
    " lambda: os.getxattr(given['file'], 'user.x'))",
    "watch_files": "done(lambda: c('inotify_init1', 0), lambda: c('fanotify_init', 0, 0))",
    "handles": "done(lambda: call(304, 265, -100, ctypes.create_string_buffer(128), 0), lambda: call(303, 264, -100,"
    " given['file'].encode(), ctypes.create_string_buffer(128), ctypes.byref(ctypes.c_int()), 0))",
    "change_folder": "done(lambda: os.chdir('/'), lambda: os.chroot('.'), lambda: os.chdir(given['folder']))",
    "mount": "done(lambda: c('mount', b'none', b'.', b'tmpfs', 0, None), lambda: c('umount2', b'/', 2),"
    " lambda: call(155, 41, b'.', b'.'), lambda: call(428, 428, -100, b'/', 1), lambda: call(430, 430, b'tmpfs', 0))",
    "own_process": "done(lambda: open('/proc/self/mem', 'r+b'), lambda: open('/proc/self/environ').read(),"
    " lambda: open('/proc/self/maps').read())",
    "environ_of_others": "done(lambda: open(f\"/proc/{given['victim']}/environ\").read(),"
    " lambda: open(f\"/proc/{given['parent']}/environ\").read(), lambda: open(f'/proc/{os.getppid()}/environ').read())",
    "memory_of_others": "done(lambda: open(f\"/proc/{given['victim']}/mem\", 'rb'),"
    " lambda: open(f'/proc/{os.getppid()}/mem', 'r+b'), lambda: open(f'/proc/{os.getppid()}/maps'))",
    "folder_of_others": "done(*[lambda path=path: os.listdir(path) for path in given['scratches']],"
    " *[lambda path=path: open(path + '/note') for path in given['scratches']])",
    "another_root": "done(lambda: open(f\"/proc/{given['victim']}/root/etc/passwd\"),"
    " lambda: open('/proc/self/cwd/../x'))",
    # network
    "internet": "done(lambda: socket.create_connection(('127.0.0.1', given['port'])), lambda: socket.socket(),"
    " lambda: socket.socket(type=socket.SOCK_DGRAM), lambda: socket.socket(type=socket.SOCK_RAW))",
    "unix_socket": "done(lambda: socket.socket(socket.AF_UNIX).connect(given['unix']))",
    "abstract_socket": "done(lambda: socket.socket(socket.AF_UNIX).connect('\\0' + given['abstract']))",
    "netlink": "done(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW), lambda: socket.socketpair(),"
    " lambda: socket.socket(socket.AF_VSOCK), lambda: socket.if_nameindex())",
    "names": "done(lambda: socket.getaddrinfo('example.invalid', 80),"
    " lambda: socket.gethostbyname('localhost.invalid'))",
    "descriptors_by_the_channel": "done(lambda: call(46, 211, 3, ctypes.create_string_buffer(56), 0),"
    " lambda: call(47, 212, 3, ctypes.create_string_buffer(56), 0), lambda: call(49, 200, 3, None, 0))",
    # other processes
    "signal_others": "done(lambda: os.kill(given['parent'], 9), lambda: os.kill(os.getppid(), 9),"
    " lambda: os.kill(given['victim'], 9), lambda: os.kill(-1, 9), lambda: os.killpg(0, 9))",
    "signal_by_other_calls": "done(lambda: call(200, 130, given['victim'], 9), lambda: call(234, 131, given['victim'],"
    " given['victim'], 9), lambda: call(129, 138, given['victim'], 9, ctypes.create_string_buffer(128)))",
    "process_descriptors": "done(lambda: os.pidfd_open(given['victim']), lambda: os.pidfd_open(os.getpid()),"
    " lambda: call(438, 438, 3, 0, 0), lambda: call(424, 424, 3, 9, 0, 0))",
    "signal_by_ownership": "done(lambda: __import__('fcntl').fcntl(3, 8, given['victim']),"
    " lambda: call(72, 25, 3, 8, given['victim']), lambda: call(72, 25, 3, 10, 9))",
    "trace": "done(lambda: c('ptrace', 16, given['victim'], None, None), lambda: c('ptrace', 0, 0, None, None),"
    " lambda: c('ptrace', 0x4206, os.getppid(), None, None))",
    "memory_by_vector": "done(lambda: call(310, 270, given['victim'], 0, 0, 0, 0, 0), lambda: call(311, 271,"
    " given['victim'], 0, 0, 0, 0, 0), lambda: call(440, 440, 3, 0, 0, 4, 0))",
    "priority": "done(lambda: os.nice(-5), lambda: os.nice(1), lambda: os.setpriority(0, given['victim'], 19),"
    " lambda: os.sched_setaffinity(0, [0]), lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),"
    " lambda: call(251, 30, 1, 0, 0))",
    "limits": "done(*[lambda limit=limit: resource.setrlimit(limit, (-1, -1)) for limit in range(16)],"
    " lambda: call(302, 261, given['victim'], 7, bytes(16), 0)) if (resource := __import__('resource')) else None",
    "timers": "done(lambda: signal.setitimer(0, 1), lambda: call(222, 107, 0, 0, 0), lambda: call(283, 85, 0, 0))",
    "shared_memory": "done(lambda: call(29, 194, 1, 4096, 0o1666), lambda: call(64, 190, 1, 1, 0o1666),"
    " lambda: call(68, 186, 1, 0o1666), lambda: call(240, 180, b'q', 0o102, 0o666, 0))",
    # the kernel
    "io_uring": "done(*[lambda number=number: call(number, number, 8, ctypes.create_string_buffer(256), 0, 0)"
    " for number in (425, 426, 427)])",
    "namespaces": "done(lambda: c('unshare', 0x10000000), lambda: c('unshare', 0x20000), lambda: c('setns', 0, 0))",
    "bpf": "done(lambda: call(321, 280, 0, bytes(128), 128), lambda: call(298, 241, bytes(128), 0, -1, -1, 0))",
    "keys": "done(*[lambda pair=pair: call(*pair, b'user', b'x', b'y', 1, -3) for pair in"
    " ((248, 217), (249, 218), (250, 219))])",
    "user_faults": "done(lambda: call(323, 282, 0), lambda: call(323, 282, 1))",
    "modules_and_machine": "done(lambda: call(175, 105, b'', 0, b''), lambda: call(246, 104, 0, 0, 0, 0),"
    " lambda: call(169, 142, 0xfee1dead, 672274793, 0x1234567, 0),"
    " lambda: c('sethostname', b'x', 1), lambda: c('sync'),"
    " lambda: time.clock_settime(time.CLOCK_REALTIME, 0), lambda: call(103, 116, 3, 0, 0))",
    "become_root": "done(lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.setgroups([0]), lambda:"
    " c('capset', bytes(8), bytes(24)), lambda: c('prctl', 38, 0, 0, 0, 0), lambda: c('prctl', 4, 1, 0, 0, 0))",
    "loosen_the_filter": "done(lambda: call(317, 277, 0, 0, 0), lambda: c('prctl', 22, 2, bytes(16), 0, 0),"
    " lambda: call(444, 444, None, 0, 1), lambda: call(446, 446, 3, 0), lambda: call(135, 92, 0x0008))",
    "calls_beyond_the_table": "done(lambda: call(0x40000000 | 57, 1000), lambda: call(100000, 100000),"
    " lambda: call(0x40000000 | 41, 1001, 2, 1, 0))",
    "more_descriptors": "[] if [fd for fd in range(256) if not done(lambda: os.fstat(fd)) == []] == [0, 1, 2, 3]"
    " else ['a descriptor of the parent']",
    "import_from_disk": "done(lambda: __import__('numpy'), lambda: __import__('geartrain.rewards'), lambda:"
    " __import__('sqlite3'), lambda: sys.path.append('.') or open('mine.py', 'w').close() or __import__('mine'))",
    "secrets_in_itself": "[name for name in os.environ if name not in ('HOME', 'TMPDIR')]"
    " + [word for word in sys.orig_argv if 's3cret' in word]",
}
"""Name -> expression with `given`, [] if all was refused."""


@dataclass(frozen=True)
class Ending:
    """Code that ends its run."""

    body: str
    """Of `attempt(given)`."""
    reasons: tuple[str, ...]
    limits: Limits | None = None
    loaded: str = ""
    """Code beside it."""

    def allowed(self) -> Limits:
        """Little time for what takes all of it."""
        return self.limits or (QUICK if "time" in self.reasons else PATIENT)


ENDINGS = {
    "infinite_loop": Ending("while True: pass", ("time",)),
    "infinite_loop_that_catches_all": Ending(
        "while True:\n  try:\n   while True: pass\n  except BaseException: pass", ("time",)
    ),
    "loop_in_c": Ending("import re; re.match('(a+)+$', 'a' * 50 + 'b')", ("time",)),
    "sleep": Ending("time.sleep(1000)", ("time",)),
    "wait_for_input": Ending("os.read(3, 100000)", ("time",)),
    "swallowed_signals": Ending(
        "for number in set(range(1, 65)) - {9, 19, 32, 33}: signal.signal(number, signal.SIG_IGN)\n while True: pass",
        ("time",),
    ),
    "processor_time_with_the_signal_ignored": Ending(
        "signal.signal(signal.SIGXCPU, signal.SIG_IGN)\n while True: pass",
        ("time",),
        Limits(seconds=60.0, cpu_seconds=1),
    ),
    "fork_bomb": Ending("while True:\n  try: os.fork()\n  except OSError: pass", ("time",)),
    "thread_bomb": Ending(
        "while True:\n  try: threading.Thread(target=time.sleep, args=[9]).start()\n  except RuntimeError: pass",
        ("time",),
    ),
    "memory_bomb": Ending("kept = [bytearray(1 << 20) for _ in iter(int, 1)]", ("memory",)),
    "memory_bomb_that_doubles": Ending("x = 'x'\n while True: x += x", ("memory",)),
    "memory_map": Ending("import mmap; kept = [mmap.mmap(-1, 1 << 24) for _ in range(100)]", ("error",)),
    "huge_number": Ending("return 10 ** 10 ** 8", ("time", "memory", "value")),
    "deep_recursion": Ending("return attempt(given)", ("error",)),
    "recursion_without_limit": Ending(
        "sys.setrecursionlimit(10 ** 9)\n return attempt(given)", ("memory", "killed", "time")
    ),
    "recursion_in_c": Ending(
        "sys.setrecursionlimit(10 ** 9)\n a, b = [], []\n for _ in range(2 * 10 ** 5): a, b = [a], [b]\n return a == b",
        ("killed",),
    ),
    "segmentation_fault": Ending("ctypes.string_at(0)", ("killed",)),
    "abort": Ending("os.abort()", ("killed",)),
    "output_without_end": Ending("while True: print('x' * 100)", ("output",)),
    "errors_without_end": Ending("while True: os.write(2, b'x' * 100)", ("output",)),
    "channel_without_end": Ending("while True: os.write(3, b'x' * 100)", ("output",)),
    "channel_byte_by_byte": Ending("while True: os.write(3, b'\\0')", ("killed",)),
    "frame_that_never_ends": Ending("os.write(3, b'\\0\\0\\1\\0x')\n time.sleep(1000)", ("time",)),
    "huge_result": Ending("return 'x' * (1 << 21)", ("output",)),
    "result_of_nothing": Ending("return float('nan')", ("value",)),
    "result_without_end": Ending("return float('-inf')", ("value",)),
    "result_in_a_circle": Ending("x = []; x.append(x); return x", ("value",)),
    "deep_result": Ending("x = []\n for _ in range(500): x = [x]\n return x", ("value",)),
    "result_that_is_no_data": Ending("return attempt", ("value",)),
    "keys_of_one_hash": Ending("return {index * (2 ** 61 - 1) for index in range(1, 3000)}", ("value",)),
    "half_a_letter": Ending("return '\\ud800'", ("value",)),
    "one_large_file": Ending(
        "with open('x', 'wb') as file:\n  while True: file.write(b'x' * 65536)", ("error",), Limits(disk_bytes=1 << 20)
    ),
    "disk_full_by_many_files": Ending(
        "for index in range(15): open(str(index), 'wb').write(b'x' * 500_000)\n time.sleep(9)", ("disk",)
    ),
    "sparse_files": Ending(
        "for index in range(15): os.ftruncate(os.open(str(index), 66), 500_000)\n time.sleep(9)", ("disk",)
    ),
    "many_files": Ending("for index in range(25): open(str(index), 'w').close()\n time.sleep(9)", ("disk",)),
    "many_descriptors": Ending("kept = [open('x', 'w') for _ in range(1000)]", ("error",)),
    "exit": Ending("sys.exit(0)", ("error",)),
    "exit_of_the_process": Ending("os._exit(0)", ("killed",)),
    "exit_by_hook": Ending(
        "import atexit; atexit.register(os.write, 3, b'\\0\\0\\0\\2{}')\n raise SystemExit(0)", ("error",)
    ),
    "close_the_channel": Ending("os.close(3)\n return 42", ("killed",)),
    "close_everything": Ending("os.closerange(0, 256)\n return 42", ("killed",)),
    "swap_the_channel": Ending("os.dup2(1, 3)\n return 42", ("time", "output", "killed")),
    "answer_in_advance": Ending("os.write(3, b'\\0\\0\\0\\x0c{\"value\": 42}')\n return 42", ("killed",)),
    "answer_with_another_token": Ending(
        'text = b\'{"token": "0123456789abcdef", "value": 42}\'\n'
        " os.write(3, len(text).to_bytes(4, 'big') + text)\n return 42",
        ("killed",),
    ),
    "say_that_the_sandbox_failed": Ending(
        "frame = sys._getframe()\n"
        " while 'request' not in frame.f_locals: frame = frame.f_back\n"
        " token = frame.f_locals['request']['token']\n"
        ' text = (\'{"token": "\' + token + \'", "reason": "unavailable", "detail": ""}\')\n'
        " os.write(3, len(text).to_bytes(4, 'big') + text.encode())\n return 42",
        ("killed",),
    ),
    "no_modules_left": Ending("sys.modules.clear()\n import json", ("error", "killed")),
    "no_builtins_left": Ending(
        "import builtins\n for name in list(vars(builtins)): delattr(builtins, name)\n return 42", ("killed", "error")
    ),
    "encoder_that_lies": Ending(
        "return 41",
        ("value",),
        loaded="import geartrain.sandbox.values as values\nvalues.tagged = lambda value: {'verdict': True}",
    ),
    "json_that_lies": Ending(
        "return 42", ("killed",), loaded="import json\njson.dumps = lambda *_, **__: '[\"value\", true]'"
    ),
    "json_without_limits": Ending(
        "return 42", ("killed",), loaded="import json\njson.dumps = lambda *_: '{\"value\": NaN}'"
    ),
    "thirty_two_bit_calls": Ending(
        "import mmap\n"
        " if ARM: os.abort()\n"
        " area = mmap.mmap(-1, 4096, prot=7)\n"
        " area.write(bytes.fromhex('b814000000cd80c3'))  # mov eax, 20; int 0x80; ret\n"
        " ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(area)))()",
        ("killed",),
    ),
}

FORGED = {
    "says_that_all_is_equal": "class Same(int):\n  __eq__ = lambda *_: True\n  __hash__ = hash\n return Same(41)",
    "text_that_is_equal": "class Same(str):\n  __eq__ = lambda *_: True\n  __hash__ = str.__hash__\n return Same('42')",
    "patched_equality": "import operator, builtins\n operator.eq = lambda *_: True\n builtins.all = bool\n return 41",
    "prints_the_verdict": "print('PASSED 42'); os.write(2, b'{\"value\": 42}'); return 41",
    "a_truth_for_a_number": "return True",
    "list_that_is_equal": "class Same(list):\n  __eq__ = lambda *_: True\n return Same([42])",
}
"""Name -> body of code that must not pass for 42."""

LEAVINGS = {
    "patched_builtins": "import builtins; builtins.sum = lambda *_: 0; builtins.print = None",
    "patched_modules": "import math, json; math.pi = 3; json.dumps = None",
    "environment": "os.environ['PATH'] = 'x'; os.umask(0) if False else None; sys.setrecursionlimit(50)",
    "file": "open('left', 'w').write('for the next')",
    "unreadable_file": "os.close(os.open('left', os.O_CREAT, 0))",
    "random_state": "import random; random.seed(7)",
    "large_memory": "global kept; kept = bytearray(1 << 26)",
}
"""Name -> body of code that leaves something for whoever comes next."""
