"""What a browser gets: the editor's files when they are installed, a page that says so when not, and the API table."""

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from codefyui_core.errors import CodefyError

if TYPE_CHECKING:
    from .plane import ControlPlane

POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'"
)

BUILDING = """<!doctype html><html lang="en"><meta charset="utf-8"><title>CodefyUI</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:15vh auto;padding:0 1rem;color:#1c2430}</style>
<h1>CodefyUI is running</h1>
<p>The editor's files aren't here yet: they are being built, or the package codefyui-web isn't installed.</p>
<p>The API answers already: <a href="/docs">its routes</a>, <a href="/api/health">health</a>.</p></html>"""


def mount(app: web.Application, plane: "ControlPlane", document: dict[str, Any]) -> None:
    """Add the pages; unknown paths below /api stay 404."""
    root = plane.registry.web_root()

    async def index(request: web.Request) -> web.StreamResponse:
        if root is not None and (root / "index.html").is_file():
            return _page((root / "index.html").read_text(encoding="utf-8"))
        return _page(BUILDING)

    async def docs(request: web.Request) -> web.StreamResponse:
        return _page(api_table(document))

    async def asset(request: web.Request) -> web.StreamResponse:
        return _asset(root, request.match_info["path"])

    app.router.add_get("/", index)
    app.router.add_get("/docs", docs)
    app.router.add_get("/assets/{path:.+}", asset)


def _page(text: str) -> web.Response:
    return web.Response(
        text=text,
        content_type="text/html",
        headers={
            "Cache-Control": "no-cache",
            "Content-Security-Policy": POLICY,
            "X-Content-Type-Options": "nosniff",
        },
    )


def _asset(root: Path | None, name: str) -> web.StreamResponse:
    if root is None:
        raise CodefyError(f"There is nothing at /assets/{name}.", code="not_found")
    folder = (root / "assets").resolve()
    path = folder if "\0" in name else (folder / name).resolve()
    if not path.is_relative_to(folder) or not path.is_file():
        raise CodefyError(f"There is nothing at /assets/{name}.", code="not_found")
    return web.FileResponse(path, headers={"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"})


def api_table(document: dict[str, Any]) -> str:
    """The routes of the API as one plain page."""
    rows = "".join(
        _row(method.upper(), path, operation)
        for path, methods in sorted(document["paths"].items())
        for method, operation in methods.items()
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>CodefyUI API</title><style>'
        "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1c2430}"
        "table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.35rem .6rem;border-bottom:1px solid #dde3ea;"
        "vertical-align:top}code{font:13px ui-monospace,monospace}.m{font-weight:600}</style>"
        f"<h1>API of CodefyUI {html.escape(document['info']['version'])}</h1>"
        '<p>The same as a machine reads it: <a href="/openapi.json">openapi.json</a></p>'
        f"<table><tr><th>Method<th>Path<th>What it does<th>Needs<th>Answers</tr>{rows}</table></html>"
    )


def _row(method: str, path: str, operation: dict[str, Any]) -> str:
    needs = ", ".join(name for scheme in operation.get("security", ()) for name in scheme) or "nothing"
    answers = ", ".join(
        f'<span title="{html.escape(answer["description"])}">{status}</span>'
        for status, answer in operation["responses"].items()
    )
    return (
        f'<tr><td class="m">{method}<td><code>{html.escape(path)}</code><td>{html.escape(operation["summary"])}'
        f"<td>{needs}<td>{answers}</tr>"
    )
