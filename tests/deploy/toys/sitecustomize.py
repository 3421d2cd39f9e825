"""Python loads this at its start from PYTHONPATH: the nine stages become toys, everything around them stays real."""

import importlib.abc
import importlib.util
import sys
from pathlib import Path

TOY = Path(__file__).with_name("toy_stage.py")
REAL = {"geartrain.stages.stage"}


class Toys(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.startswith("geartrain.stages.") and name not in REAL:
            return importlib.util.spec_from_file_location(name, TOY)
        return None


sys.meta_path.insert(0, Toys())
