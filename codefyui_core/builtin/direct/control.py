"""Control half of the direct connector."""

from codefyui_core.plugin import Claim, ConnectorControl, Invitation, Note, UsageProblem

from .address import parse


class DirectControl(ConnectorControl):
    """Says what a person should know who starts an agent by hand."""

    def serves(self, address: str) -> Claim:
        try:
            return Claim.NO if parse(address) is None else Claim.FALLBACK
        except UsageProblem:
            return Claim.NO

    async def invite(self, address: str) -> Invitation:
        parsed = parse(address)
        if parsed is None or parsed.encrypted or parsed.is_loopback:
            return Invitation()
        return Invitation(
            notes=(
                Note(
                    text="Over http:// the worker's token and the secrets of its runs cross the network "
                    "unencrypted. Use it inside a VPN or a network you trust, else https:// or SSH."
                ),
            )
        )
