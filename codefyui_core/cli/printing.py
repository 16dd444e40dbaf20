"""Text of others on this terminal."""


def shown(text: str) -> str:
    """One line without control characters: a name may hold what a terminal would obey."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
