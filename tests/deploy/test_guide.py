"""docs/cluster.md names what is there, and only that."""

import re
from pathlib import Path

import pytest

from tests.deploy.policies import access, platform, pods
from tests.deploy.rendering import K8S, OVERLAYS, overlay
from tests.deploy.validation import KUBERNETES

MADE = ("build/", ".venv/", "../shared/")
WORDS_WITH_A_SLASH = {"docker.io/library/python@sha256:…", "external-secrets.io/v1", "nvidia.com/gpu"}


@pytest.fixture(scope="module")
def guide(root: Path) -> str:
    return (root / "docs/cluster.md").read_text()


def test_every_file_named_exists(guide: str, root: Path) -> None:
    quoted = {
        text.rpartition("$PWD/")[2] for text in re.findall(r"`([^`\s]+)`", guide) if "/" in text and "*" not in text
    }
    images = {text for text in quoted if text.startswith(("geartrain/", "/"))}
    paths = {text for text in quoted - images - WORDS_WITH_A_SLASH if not text.startswith(MADE)}
    assert len(paths) > 20
    assert {path for path in paths if not ((root / path).exists() or (K8S / path).exists())} == set()


def test_every_target_named_exists(guide: str, root: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"make ([a-z-]+)", guide)) - {"a", "base"}
    assert named
    assert named - targets == set()


def test_every_installed_object_is_described(guide: str) -> None:
    names = {(found["kind"], found["metadata"]["name"]) for name in OVERLAYS for found in overlay(name)}
    rows = [line for line in guide.splitlines() if line.startswith("|")]
    # roles belong to their accounts; policies have one row; a team's namespace has a name of its own
    for kind, name in names:
        if kind in {"Role", "RoleBinding", "NetworkPolicy", "Namespace"}:
            continue
        assert any(kind in row for row in rows), kind
        assert any(f"`{name}`" in row for row in rows) or kind in {"ResourceQuota", "LimitRange"}, name


def test_numbers_are_those_of_the_code(guide: str) -> None:
    assert f"{len((*pods.POLICIES, *access.POLICIES, *platform.POLICIES))} policies hold" in guide
    assert f"Kubernetes {KUBERNETES[0]} and {KUBERNETES[1]}" in guide
    assert f"{KUBERNETES[0]} to {KUBERNETES[1]}" in guide
