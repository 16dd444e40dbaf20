"""The options that plugins add to ``cdui agent start``, each with its owner."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..plugin import Connector
from ..plugin.storage import AnyBackend
from .answers import WrongAnswer
from .conflicts import NameKind, Owners, Reserved
from .contribution import Contribution

if TYPE_CHECKING:
    import click


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOption:
    """One option, and the descriptor whose ``Target.options`` or ``settle`` gets its value."""

    option: "click.Option"
    kind: NameKind
    """CONNECTOR or BACKEND."""
    descriptor: str
    distribution: str


def agent_options(
    contributions: Sequence[Contribution],
    *,
    charge: Callable[[str, BaseException], object],
    reserved: Reserved | None = None,
) -> tuple[AgentOption, ...]:
    """Ask every descriptor. Click is imported by those that have options; a node pack has none.

    Raises: PluginConflict for a flag, or the parameter name behind it, with two owners.
    """
    owners = Owners(reserved)
    found: list[AgentOption] = []
    for brought in contributions:
        try:
            options = [
                option for one in _descriptors(brought) for option in _options(*one, brought.distribution)
            ]
        except (Exception, SystemExit) as error:
            charge(brought.entry_point, error)
            continue
        for option in options:
            for name in sorted(
                {*option.option.opts, *option.option.secondary_opts, option.option.name or ""}
            ):
                owners.claim(NameKind.OPTION, name, option.distribution)
        found.extend(options)
    return tuple(found)


def _descriptors(brought: Contribution) -> Iterator[tuple[NameKind, Connector | AnyBackend]]:
    yield from ((NameKind.CONNECTOR, connector) for connector in brought.connectors.values())
    yield from ((NameKind.BACKEND, backend) for backend in brought.backends.values())


def _options(kind: NameKind, descriptor: Connector | AnyBackend, distribution: str) -> Iterator[AgentOption]:
    answer = tuple(descriptor.agent_options())
    if not answer:
        return
    import click

    for option in answer:
        if not isinstance(option, click.Option):
            raise WrongAnswer(
                f"{descriptor.name}.agent_options answered {option!r}, which is not a click.Option"
            )
        yield AgentOption(option=option, kind=kind, descriptor=descriptor.name, distribution=distribution)
