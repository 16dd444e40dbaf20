"""A resolver that remembers what it answered, for the question whether a name meant this machine."""

import socket

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver

from .address import is_loopback


class RememberingResolver(AbstractResolver):
    """The system's resolver, and the addresses that it gave for each name."""

    def __init__(self) -> None:
        self._resolver = DefaultResolver()
        self._answers: dict[str, tuple[str, ...]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        self._answers[host] = tuple(one["host"] for one in found)
        return found

    def only_loopback(self, host: str) -> bool:
        """The name was resolved, and to nothing but loopback addresses."""
        answers = self._answers.get(host, ())
        return bool(answers) and all(is_loopback(address) for address in answers)

    async def close(self) -> None:
        await self._resolver.close()
