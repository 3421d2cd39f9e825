"""Compile the pipeline and check it: `python -m pipelines.compile --out build [--params params.yaml]`.

With `--params` the file's sections become the defaults of the pipeline's parameters, with `--cluster` a file those of
the training jobs. `--lint` checks without writing, `--lint FILE` checks any compiled pipeline. `--release` insists on
what a real cluster needs. `--native` writes objects for `kubectl apply` beside it. GEARTRAIN_IMAGE, GEARTRAIN_SITE
(dev, prod) and GEARTRAIN_CLUSTER (a file, as `--cluster`) say what it is compiled for, also by `geartrain submit`.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kfp.compiler import Compiler

from geartrain.cluster.jobs import read_jobs
from geartrain.config import Config, parse_config
from geartrain.config_file import load_config
from geartrain.errors import UserError
from pipelines.compiled import read_compiled
from pipelines.findings import explain
from pipelines.lint import lint
from pipelines.native import write_native
from pipelines.training import training


def arguments(config: Config) -> dict[str, Any]:
    """Return the pipeline's arguments that carry a whole configuration; Kubeflow takes no null, so None is left out."""
    whole = config.model_dump(mode="json", exclude_none=True)
    assert parse_config(whole, source="itself") == config, "a field that may be None must default to it"
    assert whole.keys() <= training.component_spec.inputs.keys(), "every section is a parameter of the pipeline"
    return whole


def compile_pipeline(
    path: Path,
    config: Config | None = None,
    *,
    jobs: Mapping[str, Mapping[str, Any]] | None = None,
    release: bool = False,
) -> None:
    """Write the compiled pipeline (IR YAML) to `path`.

    Args:
        path: file to write.
        config: becomes the defaults of its parameters.
        jobs: become the defaults of the parameters that describe training jobs; see `jobs.read_jobs`.
        release: insist on what a real cluster needs.

    Raises:
        UserError: it is in a trap that `lint` knows; nothing is written.
    """
    defaults = {**({} if config is None else arguments(config)), **(jobs or {})}
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / path.name
        Compiler().compile(training, str(written), pipeline_parameters=defaults or None)
        check(written, release=release)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(written.read_bytes())


def check(path: Path, *, release: bool) -> int:
    """Return the number of tasks of a compiled pipeline. Raises UserError: it is in a trap; the message lists all."""
    compiled = read_compiled(path)
    problems = explain(lint(compiled, release=release))
    if problems:
        raise UserError("\n".join([f"{path.name}: {len(problems)} problem(s)", *(f"  {line}" for line in problems)]))
    return len(compiled.tasks)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.compile", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build"), help="folder to write training.yaml to")
    parser.add_argument("--params", type=Path, help="configuration that becomes the parameters' defaults")
    given = os.environ.get("GEARTRAIN_CLUSTER")
    parser.add_argument(
        "--cluster", type=Path, default=Path(given) if given else None, help="settings of the training jobs"
    )
    parser.add_argument("--release", action="store_true", help="insist on images by digest")
    parser.add_argument("--native", action="store_true", help="write native.yaml too: Pipeline and PipelineVersion")
    parser.add_argument("--namespace", default="geartrain", help="of the objects that --native writes")
    parser.add_argument("--lint", type=Path, nargs="?", const=Path(), metavar="FILE", help="only check")
    options = parser.parse_args()
    try:
        for line in _run(options):
            print(line)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def _run(options: argparse.Namespace) -> list[str]:
    """Do what the command line asks for; return what to print."""
    config = None if options.params is None else load_config(options.params)
    jobs = None if options.cluster is None else read_jobs(options.cluster)
    if options.lint is not None and options.lint != Path():
        return [_checked(options.lint, options.release)]
    if options.lint is not None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "training.yaml"
            compile_pipeline(path, config, jobs=jobs, release=options.release)
            return [_checked(path, options.release)]
    path = options.out / "training.yaml"
    compile_pipeline(path, config, jobs=jobs, release=options.release)
    if not options.native:
        return [str(path)]
    native = options.out / "native.yaml"
    write_native(path, native, namespace=options.namespace)
    return [str(path), str(native)]


def _checked(path: Path, release: bool) -> str:
    return f"{path.name}: {check(path, release=release)} tasks, nothing found"


if __name__ == "__main__":
    main()
