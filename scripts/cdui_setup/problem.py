"""Errors of the set-up that a person reads."""


class SetupProblem(Exception):
    """The set-up can't go on; the message says why and what to do next."""

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


USAGE = 2
STOP_SERVER_FIRST = 3
