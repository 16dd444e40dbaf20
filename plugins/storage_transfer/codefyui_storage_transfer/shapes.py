"""What the routes for outputs have in common: who sends, and what is wrong with what was sent."""

from pydantic import ValidationError

from codefyui_core.plugin import AttemptView, Caller, CodefyError, FormProblem, Problem

FENCE = "X-CodefyUI-Attempt"


class Misshapen(FormProblem):
    """A query or a manifest that isn't of the route's shape."""

    default_code = "request.invalid"


def misshapen(error: ValidationError) -> Misshapen:
    """By field."""
    return Misshapen(
        [
            Problem(
                message=f"{'.'.join(map(str, item['loc']))}: {item['msg']}",
                field=".".join(map(str, item["loc"])),
                code=item["type"],
            )
            for item in error.errors(include_url=False, include_context=False, include_input=False)
        ]
    )


def attempt_of(caller: Caller) -> AttemptView:
    assert caller.attempt is not None, "the gate lets only the run's worker in"
    return caller.attempt


def over(attempt: AttemptView) -> CodefyError:
    return CodefyError(f"Attempt {attempt.number} of run {attempt.run_id} is over.", code="run.attempt_over")


def exists(key: str) -> CodefyError:
    return CodefyError(
        f"Another file came under the key {key}. Send this one under a key of its own.", code="upload.exists"
    )
