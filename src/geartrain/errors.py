"""The errors that a stage may end with, and the exit code each one means.

An orchestrator reads only the exit code: a user error must not be retried, a
fault of the infrastructure should be.
"""

EXIT_USER = 2
EXIT_DOUBT = 3  # of `geartrain lineage verify` and `model verify`: it is not what it was
EXIT_UNHEALTHY = 4  # of `geartrain diagnose --fail`: the run is not healthy
EXIT_INFRASTRUCTURE = 75  # EX_TEMPFAIL of sysexits.h: "try again later"
EXIT_QUEUE = 76  # a cluster's queue was too long: nothing is wrong, the place is missing


class GeartrainError(Exception):
    """Base of every error that geartrain raises on purpose.

    The message states the problem, where it is, and how to mend it.
    """

    exit_code = 1


class UserError(GeartrainError):
    """Configuration or data that a person has to mend; retrying changes nothing."""

    exit_code = EXIT_USER


class WithdrawnError(UserError):
    """What is withdrawn, or was made from what is, was about to be used."""


class TamperedError(GeartrainError):
    """What is there is not what was signed or recorded; somebody has to find out why before it is used."""

    exit_code = EXIT_DOUBT


class InfrastructureError(GeartrainError):
    """Disk, network or node trouble; the same call may succeed later."""

    exit_code = EXIT_INFRASTRUCTURE


class QueueError(GeartrainError):
    """A job waited longer for its place in the cluster's queue than it was allowed to."""

    exit_code = EXIT_QUEUE
