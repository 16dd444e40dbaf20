"""Numbers that a text param holds, separated by commas: ``2,3,-1``."""

from .base import UnfitError


def integers(text: object, where: str) -> tuple[int, ...]:
    """The whole numbers of ``text``, in order; blanks and a trailing comma are fine.

    ``where`` is the node and its param, for the message.

    Raises: UnfitError, when there is none or one can't be read.
    """
    items = [item.strip() for item in str(text).split(",")]
    try:
        found = tuple(int(item) for item in items if item)
    except ValueError as error:
        raise UnfitError(
            f"{where} needs whole numbers separated by commas, such as 2,3; it is {text!r}"
        ) from error
    if not found:
        raise UnfitError(f"{where} is empty; write whole numbers separated by commas, such as 2,3")
    return found
