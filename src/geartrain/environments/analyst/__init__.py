from geartrain.environments.analyst.editions import build_worlds
from geartrain.environments.analyst.environment import AnalystEnvironment
from geartrain.environments.analyst.flaws import FLAWS, Habits

__all__ = ["FLAWS", "AnalystEnvironment", "Habits", "build_worlds"]
