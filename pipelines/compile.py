"""Compile the pipeline: `python -m pipelines.compile --out build [--params params.yaml]`.

With `--params` the file's sections become the defaults of the pipeline's parameters.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from kfp.compiler import Compiler

from geartrain.config import Config, parse_config
from geartrain.config_file import load_config
from geartrain.errors import UserError
from pipelines.training import training


def arguments(config: Config) -> dict[str, Any]:
    """Return the pipeline's arguments that carry a whole configuration; Kubeflow takes no null, so None is left out."""
    whole = config.model_dump(mode="json", exclude_none=True)
    assert parse_config(whole, source="itself") == config, "a field that may be None must default to it"
    return {name: whole[name] for name in training.component_spec.inputs}


def compile_pipeline(path: Path, config: Config | None = None) -> None:
    """Write the compiled pipeline (IR YAML) to `path`; with a configuration, as the parameters' defaults."""
    path.parent.mkdir(parents=True, exist_ok=True)
    defaults = None if config is None else arguments(config)
    Compiler().compile(training, str(path), pipeline_parameters=defaults)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.compile", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build"), help="folder to write training.yaml to")
    parser.add_argument("--params", type=Path, help="configuration that becomes the parameters' defaults")
    options = parser.parse_args()
    try:
        config = None if options.params is None else load_config(options.params)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    path = options.out / "training.yaml"
    compile_pipeline(path, config)
    print(path)


if __name__ == "__main__":
    main()
