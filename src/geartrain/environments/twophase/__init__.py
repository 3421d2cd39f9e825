from geartrain.environments.twophase.environment import TwoPhaseEnvironment
from geartrain.environments.twophase.flaws import FLAWS, Habits
from geartrain.environments.twophase.towns import build_worlds

__all__ = ["FLAWS", "Habits", "TwoPhaseEnvironment", "build_worlds"]
