"""Runs code that nobody has vouched for: answers of a model, verifiers that a program wrote.

`supervisor.Sandbox` starts a process of its own, the zygote: an empty environment, nothing of its parent's memory, all
modules loaded that code may import. For each run the zygote forks; the fork takes its own rights away, and then runs
the code. Its functions are called one by one; values come back as data and are compared by the caller. What was
expected never is where the code runs, and nothing that code prints, patches or writes to its channel means "right".

What holds the code (each by itself; `check` tries them before any code is run, and no code runs where one is missing):

- another uid where the trainer is root, no capabilities, no_new_privs, nothing that a process holds can be read;
- Landlock: no file is readable or writable but those of one flat scratch folder, which is emptied after each run, and
  /dev/null. No library either: what was not loaded cannot be imported. TCP and signals too, where the kernel has them;
- seccomp: about 60 system calls that CPython needs to compute; any other fails. No process, no thread, no program, no
  socket, no signal, no change of limits, modes, owners or times of files;
- rlimits: CPU, memory, size of a file, open files, processes (none), core files (none);
- the supervisor: time, bytes printed, bytes answered, bytes and files in the scratch folder; whoever is over is killed.

What it does not stop:

- faults of the kernel in the calls that are left, and of the CPU (Spectre and its kin: code may time itself);
- learning that a path exists, its size, owner and times: stat is not covered by Landlock. Nothing of what is in it;
- learning the machine's name, kernel, number of cores, load by timing, and that it is in a sandbox;
- using what it was granted: a core for `seconds`, memory, and a disk until the supervisor looks, which it does every 25
  ms: a fast writer gets beyond `disk_bytes` by what it writes in that time;
- a wrong answer. A value is whatever the code says it is; a function that is called twice may remember the first call,
  and code that got in with a verifier can do what it likes to that verifier: never run the two in one run;
- what the caller does with values: they are plain data, but as long, deep or odd as the limits allow.

A node that runs code of strangers wants an outer wall too: a pod without account and network, or Kata's runtime.
"""
