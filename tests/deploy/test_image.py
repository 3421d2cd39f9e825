"""The images' recipe: linted, pinned, and what it copies is there. `make images` builds them."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml

from tests.deploy.rendering import K8S, one, overlay

NOBODY = 65532
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\]+)", re.MULTILINE)
SCRIPTS = ("build", "debian-base")
FINAL = ("cpu", "gpu")
WRITABLE = ("/tmp", "/cache", "/work")


@pytest.fixture(scope="module")
def recipe(root: Path) -> str:
    return (root / "Dockerfile").read_text().replace("\\\n", "")


def _stage(recipe: str, name: str) -> str:
    """Return the instructions of a stage, after those of the stages that it is made from."""
    found = re.findall(r"^FROM (\S+) AS ([\w-]+)\n(.*?)(?=^FROM |\Z)", recipe, re.MULTILINE | re.DOTALL)
    stages = {child: (parent, text) for parent, child, text in found}
    parent, text = stages[name]
    return (_stage(recipe, parent) if parent in stages else "") + text


def _pins(path: Path) -> dict[str, str]:
    return {name.lower().replace("_", "-"): version for name, version in PIN.findall(path.read_text())}


def test_linter_finds_nothing(root: Path) -> None:
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    linter = shutil.which("hadolint", path=folders)
    assert linter, "no hadolint: `make setup` installs it"
    done = subprocess.run([linter, str(root / "Dockerfile")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_parse_and_may_be_run(name: str) -> None:
    path = K8S / "images" / name
    assert os.access(path, os.X_OK)
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        (["tpu"], {}, "no target tpu"),
        (["cpu"], {"ENGINE": "no-such-engine"}, "no no-such-engine on this machine"),
        (["cpu"], {"PUSH": "registry.example.com"}, "base by digest"),
        (["cpu"], {"WHEELS": "/nowhere"}, "no CPU build of torch"),
    ],
)
def test_build_says_what_is_missing(arguments: list[str], variables: dict[str, str], message: str, root: Path) -> None:
    if list(root.glob("build/wheels/torch-*.whl")) and "WHEELS" in variables:
        message = "images: building"  # a wheel of an earlier build is there
    command = ["bash", str(K8S / "images/build"), *arguments]
    environment = {**os.environ, "ENGINE": "false", **variables}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode != 0
    assert message in done.stdout + done.stderr


def test_everything_that_is_copied_is_there_and_not_ignored(recipe: str, root: Path) -> None:
    copied = re.findall(r"^COPY (?!--from)(.*)$", recipe, re.MULTILINE)
    sources = {source for line in copied for source in line.split()[:-1]} - {"build/wheels/"}
    assert sources
    assert {source for source in sources if not (root / source).exists()} == set()
    ignored = (root / ".dockerignore").read_text().splitlines()
    admitted = tuple(line.removeprefix("!") for line in ignored if line.startswith("!"))
    assert "*" in ignored
    assert {source for source in sources if not source.startswith(admitted)} == set()


@pytest.mark.parametrize("target", FINAL)
def test_image_is_run_by_the_nobody_of_the_manifests(target: str, recipe: str) -> None:
    users = re.findall(r"^USER (.*)$", _stage(recipe, target), re.MULTILINE)
    assert users[-1:] == [f"{NOBODY}:{NOBODY}"]
    job = one(overlay("prod"), "TrainingRuntime", "geartrain-torch")["spec"]["template"]["spec"]["replicatedJobs"][0]
    pod = job["template"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == NOBODY
    mounted = {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"] if not mount.get("readOnly")}
    assert mounted == {*WRITABLE, "/dev/shm"}
    # whatever is told to write, writes below one of the volumes
    environment = dict(re.findall(r"(\w+)=(/\S+)", _stage(recipe, target)))
    writers = {name: path for name, path in environment.items() if re.search(r"HOME|DIR", name)}
    assert {"HOME", "TMPDIR", "HF_HOME", "TORCHINDUCTOR_CACHE_DIR", "MPLCONFIGDIR"} <= writers.keys()
    assert {name for name, path in writers.items() if not path.startswith(WRITABLE)} == set()


@pytest.mark.parametrize("target", FINAL)
def test_last_layers_install_nothing(target: str, recipe: str) -> None:
    instructions = _stage(recipe, target)
    assert not re.search(r"apt-get|\bpip\b|gcc|g\+\+|build-essential", instructions)
    assert "/usr/share/sbom/" in instructions
    titles = re.findall(r'image\.title="([^"]*)"', instructions)
    release = yaml.safe_load((K8S / "components/release/kustomization.yaml").read_text())
    assert titles[0] in {image["name"] for image in release["images"]}


@pytest.mark.parametrize("target", FINAL)
def test_an_image_knows_its_commit_itself(target: str, recipe: str) -> None:
    assert 'GEARTRAIN_GIT_COMMIT="${REVISION}"' in _stage(recipe, target)


@pytest.mark.parametrize("target", FINAL)
def test_no_secret_is_built_in(target: str, recipe: str) -> None:
    assert not re.search(r"(?i)password|secret|token|credential|index_url", _stage(recipe, target))


def test_pins_of_the_images_are_those_of_the_lock(root: Path) -> None:
    locked = _pins(root / "requirements/lock.txt")
    for part in ("image", "image-gpu", "image-build", "image-sbom"):
        pins = _pins(root / f"requirements/{part}.txt")
        assert pins
        assert {name: version for name, version in pins.items() if locked.get(name, version) != version} == {}, (
            "requirements/lock.txt has others: run `make image-lock`"
        )


def test_images_hold_what_the_project_declares(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = [project["optional-dependencies"][name] for name in ("pipeline", "features", "supply")]
    declared = [*project["dependencies"], *chain.from_iterable(extras)]
    wanted = {re.split(r"[\[=<>~ ]", entry)[0].lower() for entry in [*declared, "deepspeed"]}
    held = {**_pins(root / "requirements/image.txt"), **_pins(root / "requirements/image-gpu.txt")}
    assert wanted - held.keys() == set(), "run `make image-lock`"
    development = {"pytest", "mypy", "ruff", "import-linter"}
    assert held.keys() & development == set()


@pytest.mark.parametrize("part", ["image", "image-gpu", "image-build", "image-sbom"])
def test_every_pin_has_a_hash(part: str, root: Path) -> None:
    text = (root / f"requirements/{part}.txt").read_text()
    for entry in re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in entry


def test_only_torch_and_its_libraries_differ_between_the_images(root: Path) -> None:
    gpu = _pins(root / "requirements/image-gpu.txt")
    assert {name for name in gpu if not name.startswith(("nvidia-", "cuda-"))} == {"torch", "triton"}
    assert not {"torch", "triton"} & _pins(root / "requirements/image.txt").keys()
