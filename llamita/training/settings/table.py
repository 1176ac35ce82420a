"""What every table of a recipe is: checked, frozen, without settings that nobody knows."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Table(BaseModel):
    """A table of settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
