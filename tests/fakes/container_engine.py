"""A container engine as far as `pipelines.containers` uses one: a container is a process whose /work lies elsewhere.

The process gets the variables that were given and the toys, nothing of ours. $ENGINE_IMAGES: the images that there are.
$ENGINE_KILLS: a task whose container is killed. $ENGINE_BROKEN: the engine itself fails.
"""

import argparse
import os
import signal
import subprocess
import sys

KEPT = ("PATH", "PYTHONPATH", "TOY_TROUBLE", "TOY_VERDICT")


def main(words):
    if words[:2] == ["image", "inspect"]:
        return 0 if words[2] in os.environ["ENGINE_IMAGES"].split() else _say("no such image", 1)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in ("--rm", "--read-only"):
        parser.add_argument(flag, action="store_true", required=True)
    for option in ("--pull", "--user", "--network", "--cap-drop", "--security-opt", "--pids-limit", "--entrypoint"):
        parser.add_argument(option, required=True)
    parser.add_argument("--userns")
    for option in ("--tmpfs", "--env", "--volume"):
        parser.add_argument(option, action="append", default=[])
    parser.add_argument("image")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(words[1:])
    if os.environ.get("ENGINE_BROKEN"):
        return _say("cannot set up namespace", 125)
    mounts = dict(reversed(volume.split(":")[:2]) for volume in options.volume)  # inside -> outside
    variables = {name: os.environ[name] for name in KEPT if name in os.environ}
    for pair in options.env:
        name, _, value = pair.partition("=")
        variables[name] = mounts.get(value, value)
    root = next(inside for inside, outside in mounts.items() if inside == outside)
    command = [options.entrypoint, *options.arguments]
    if f"{root}/" not in " ".join(command):
        return _say("the task's artifacts are not in a folder of the container", 1)
    if f"/{os.environ.get('ENGINE_KILLS')}/" in " ".join(command):
        command = ["sh", "-c", f"kill -{signal.SIGKILL.value} $$"]
    ended = subprocess.run(command, env=variables, check=False).returncode
    return 128 - ended if ended < 0 else ended


def _say(message, code):
    print(f"Error: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
