"""What plain HTTP reaches on this machine: curl to and from an nginx on loopback."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from .processes import wait_for

NGINX = shutil.which("nginx") or "/usr/sbin/nginx"
CURL = shutil.which("curl")
AT_ONCE = 4
CONFIG = """
daemon off; error_log {root}/error.log; pid {root}/nginx.pid; worker_processes 1;
{user}
events {{ worker_connections 64; }}
http {{
  client_body_temp_path {store}/.b; proxy_temp_path {root}/p; fastcgi_temp_path {root}/f;
  uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;
  access_log off; sendfile on; tcp_nodelay on; client_max_body_size 0;
  server {{
    listen 127.0.0.1:{port};
    location / {{ root {store}; dav_methods PUT; create_full_put_path on; }}
  }}
}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebServer:
    """Serves the files of a folder and takes files in."""

    url: str
    store: Path

    def download(self, names: Sequence[str], into: Path) -> float:
        """Seconds until all are there."""
        into.mkdir(exist_ok=True)
        lines = [f'url = "{self.url}/{name}"\noutput = "{into / name}"' for name in names]
        return self._curl(lines, into)

    def upload(self, paths: Sequence[Path]) -> float:
        """Seconds until it has answered for all."""
        lines = [f'url = "{self.url}/put/{path.name}"\nupload-file = "{path}"' for path in paths]
        return self._curl(lines, paths[0].parent)

    def _curl(self, lines: Sequence[str], folder: Path) -> float:
        assert CURL is not None
        config = folder / ".curl"
        config.write_text("\nnext\n".join(f"{line}\nsilent\nfail" for line in lines), encoding="utf-8")
        parallel = (
            ["--parallel", "--parallel-max", str(AT_ONCE), "--no-progress-meter"] if len(lines) > 1 else []
        )
        begun = time.perf_counter()
        subprocess.run([CURL, "--silent", *parallel, "--config", str(config)], check=True)
        return time.perf_counter() - begun


def missing() -> str | None:
    """What a comparison lacks here."""
    there = {
        "curl": CURL is not None,
        "nginx": Path(NGINX).exists(),
        "Linux": Path("/proc/self/clear_refs").exists(),
    }
    return next((name for name, is_there in there.items() if not is_there), None)


@contextmanager
def web_server(root: Path, store: Path) -> Iterator[WebServer]:
    root.mkdir(parents=True, exist_ok=True)
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    user = "user root;" if hasattr(os, "geteuid") and os.geteuid() == 0 else ""
    config = root / "nginx.conf"
    config.write_text(CONFIG.format(root=root, store=store, port=port, user=user), encoding="utf-8")
    with subprocess.Popen(
        [NGINX, "-c", str(config), "-p", str(root), "-e", str(root / "error.log")]
    ) as nginx:
        try:
            wait_for((root / "nginx.pid").exists, "nginx")
            yield WebServer(url=f"http://127.0.0.1:{port}", store=store)
        finally:
            nginx.terminate()
