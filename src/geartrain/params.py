"""Write a configuration as commented YAML: every field, its value, and what it does."""

import textwrap
from typing import Any

import yaml
from pydantic import BaseModel

from geartrain.config import Config

WIDTH = 110


def render(config: Config, *, only: str | None = None) -> str:
    """Return `params.yaml` text that parses back to the same configuration (or one section of it)."""
    fields = [only] if only else list(type(config).model_fields)
    return "".join(_field(config, name, depth=0, top=True) for name in fields)


def _field(section: BaseModel, name: str, *, depth: int, top: bool = False) -> str:
    value, pad = getattr(section, name), "  " * depth
    text = "\n" if top and isinstance(value, BaseModel) else ""
    about = type(section).model_fields[name].description
    if about is None and isinstance(value, BaseModel) and top:
        about = (type(value).__doc__ or "").strip().splitlines()[0]
    if about:
        about = " ".join(about.split())
        text += textwrap.indent("\n".join(textwrap.wrap(about, WIDTH - len(pad))), f"{pad}# ") + "\n"
    if isinstance(value, BaseModel):
        inner = [_field(value, part, depth=depth + 1) for part in type(value).model_fields]
        return text + f"{pad}{name}:\n" + "".join(inner)
    return text + f"{pad}{name}: {_scalar(section.model_dump(mode='json')[name])}\n"


def _scalar(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...")
