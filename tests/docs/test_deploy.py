"""The files in deploy/ say what the servers need of them."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest


def unit(repository: Path, name: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(repository / "deploy" / name)
    return parser


@pytest.mark.parametrize("name", ["codefyui.service", "codefyui-agent.service"])
def test_a_unit_lets_the_process_end_its_runs_itself(repository: Path, name: str) -> None:
    service = unit(repository, name)["Service"]
    assert (service["Type"], service["KillMode"], service["Restart"]) == ("exec", "mixed", "on-failure")
    assert "PrivateDevices" not in service
    assert re.search(r"cdui .*(-f|--foreground)\b", service["ExecStart"])


@pytest.mark.spec("transfer/proxy-body-limit-covers-largest-output")
def test_the_site_lets_workers_and_uploads_through(repository: Path) -> None:
    text = (repository / "deploy" / "nginx.conf").read_text()
    size = re.search(r"client_max_body_size (\d+)m;", text)
    assert size is not None
    assert int(size[1]) >= 500
    for line in (
        "proxy_http_version 1.1;",
        "proxy_buffering off;",
        "proxy_request_buffering off;",
        "$http_host;",
    ):
        assert line in text


@pytest.mark.service
@pytest.mark.needs("nginx", "openssl")
def test_nginx_accepts_the_site(repository: Path, tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=x",
            "-keyout",
            key,
            "-out",
            certificate,
        ],
        check=True,
        capture_output=True,
    )
    site = (repository / "deploy" / "nginx.conf").read_text()
    site = site.replace("/etc/ssl/codefyui/fullchain.pem", str(certificate))
    site = site.replace("/etc/ssl/codefyui/privkey.pem", str(key))
    site = site.replace("/var/log/nginx/", f"{tmp_path}/").replace("listen 80", "listen 127.0.0.1:18080")
    site = site.replace("listen 443", "listen 127.0.0.1:18443")
    config = tmp_path / "nginx.conf"
    config.write_text(f"pid {tmp_path}/pid; error_log {tmp_path}/error.log; events {{}} http {{ {site} }}")
    nginx = shutil.which("nginx") or "/usr/sbin/nginx"
    ran = subprocess.run(
        [nginx, "-t", "-c", config, "-p", tmp_path], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
