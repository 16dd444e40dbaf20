"""A real nginx for tests, with the site of ``deploy/nginx.conf`` on ports of loopback."""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path

from .certificates import Issued

SITE = Path(__file__).parents[2] / "deploy" / "nginx.conf"
WITHIN_S = 20.0
MAIN = """
daemon off; error_log {root}/error.log info; pid {root}/nginx.pid; worker_processes 1;
events {{ worker_connections 64; }}
http {{
  client_body_temp_path {root}/b; proxy_temp_path {root}/p; fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;
  include {root}/site.conf;
}}
"""


class NginxSite:
    """Ends TLS in front of a server. ``folder`` is its own."""

    def __init__(self, folder: Path, upstream: str, issued: Issued) -> None:
        self.folder = folder
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir()
        issued.write(folder)
        (folder / "nginx.conf").write_text(MAIN.format(root=folder))
        (folder / "site.conf").write_text(self._site(upstream))

    def _site(self, upstream: str) -> str:
        """The one that people copy, with places and ports of the test."""
        text = SITE.read_text()
        for theirs, ours in {
            "/etc/ssl/codefyui/fullchain.pem": str(self.certificate_file),
            "/etc/ssl/codefyui/privkey.pem": str(self.folder / "leaf.key"),
            "/var/log/nginx/codefyui.log": str(self.folder / "access.log"),
            "listen 80;": f"listen 127.0.0.1:{_free_port()};",
            "listen 443 ssl;": f"listen 127.0.0.1:{self.port} ssl;",
            "http://127.0.0.1:8000": upstream,
        }.items():
            if text.count(theirs) != 1:
                raise AssertionError(f"{SITE} has not one {theirs}")
            text = text.replace(theirs, ours)
        return text

    @property
    def certificate_file(self) -> Path:
        return self.folder / "leaf.pem"

    @property
    def address(self) -> str:
        return f"https://localhost:{self.port}"

    @property
    def requests(self) -> list[str]:
        """``GET /path 200``, of all that were answered."""
        lines = (self.folder / "access.log").read_text().splitlines()
        return [line.partition('"')[2].rpartition(" ")[0].replace('"', "") for line in lines]

    def start(self) -> None:
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        command = [nginx, "-c", str(self.folder / "nginx.conf"), "-p", str(self.folder)]
        command += ["-e", str(self.folder / "error.log")]
        if os.geteuid() == 0:
            command += ["-g", "user root;"]
        self._process = subprocess.Popen(command)
        self._wait_for_certificate()

    def stop(self) -> None:
        """Every line breaks."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(WITHIN_S)
        self._process = None

    def present(self, issued: Issued) -> None:
        """To new connections; those that are open stay."""
        issued.write(self.folder)
        os.kill(int((self.folder / "nginx.pid").read_text()), signal.SIGHUP)
        self._wait_for_certificate()

    def _wait_for_certificate(self) -> None:
        leaf = self.certificate_file.read_text()
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            with suppress(OSError):
                if leaf.startswith(ssl.get_server_certificate(("127.0.0.1", self.port), timeout=5)):
                    return
            time.sleep(0.02)
        raise AssertionError(f"nginx doesn't serve the certificate; see {self.folder}/error.log")


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
