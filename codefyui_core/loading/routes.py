"""Routes of plugins: their shape, and that each has one owner."""

import re
from collections.abc import Iterable

from ..errors import CodefyError
from ..plugin import Auth, Route
from .conflicts import CORE, NameKind, Owners

_METHODS = frozenset({"DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"})
_VARIABLE = re.compile(r"\{[^{}:]+(:[^{}]*(?:\{[^{}]*\}[^{}]*)*)?\}")


class RouteProblem(CodefyError):
    """A route that its plugin may not have; charge it to the plugin."""

    default_code = "plugin.route"


def check_routes(claims: Iterable[tuple[str, Route]]) -> None:
    """Every route with the distribution that owns it, the core's own first.

    ``/api/runs/{run_id}/x`` and ``/api/runs/{id}/x`` are one route, since the same requests fit both.

    Raises: PluginConflict naming both owners; RouteProblem for one whose shape is wrong.
    """
    owners = Owners()
    for distribution, route in claims:
        _check_shape(distribution, route)
        owners.claim(NameKind.ROUTE, f"{route.method.upper()} {_shape(route.path)}", distribution)


def _check_shape(distribution: str, route: Route) -> None:
    where = f"route {route.method} {route.path} of {distribution}"
    if route.method.upper() not in _METHODS:
        raise RouteProblem(f"{where}: the method is none of {', '.join(sorted(_METHODS))}")
    if distribution != CORE and not route.path.startswith("/api/"):
        raise RouteProblem(f"{where}: a path must begin with /api/")
    if route.auth is Auth.RUN_WORKER and not re.search(r"\{run_id[:}]", route.path):
        raise RouteProblem(f"{where}: RUN_WORKER needs {{run_id}} in the path")


def _shape(path: str) -> str:
    return _VARIABLE.sub(lambda found: "{" + (found[1] or "") + "}", path.rstrip("/"))
