"""What sections of a configuration are made of: the base, numbers with bounds, how episodes are sampled."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _no_switch(value: Any) -> Any:
    if isinstance(value, bool):  # else pydantic reads true as 1
        raise ValueError("expected a number")
    return value


Number = BeforeValidator(_no_switch)
Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False), Number]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False), Number]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False), Number]
Count = Annotated[int, Field(ge=1, le=10**9), Number]


class Section(BaseModel):
    """Base of every section."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class SamplingSection(Section):
    """How episodes are sampled."""

    temperature: Positive = 1.0
    max_new_tokens: Count = 96
    """Longest agent message; one that is cut off is an invalid call, not the end of the episode."""
    rows: Count = 64
    """Episodes decoded at the same time; high uses memory, low wastes dispatch time."""
