"""What can be wrong with features. All are for a person to mend; the message says how."""

from geartrain.errors import UserError


class FeatureError(UserError):
    """Base of the errors below."""


class NaiveTimeError(FeatureError):
    """A time without a zone: which instant it means depends on the machine."""


class TableError(FeatureError):
    """A feature table that is missing, malformed, or says two things at once."""


class DefinitionError(FeatureError):
    """A definition that is missing, or that would let later knowledge in."""


class MissingFeatureError(FeatureError):
    """A feature that was required has no value as of the time asked for."""


class FrameError(FeatureError):
    """A frame that is missing, or whose rows are not those that it is used for."""
