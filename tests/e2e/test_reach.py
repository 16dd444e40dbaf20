"""Through a TLS proxy: the socket follows the address's scheme, and a trusted certificate is all that it takes."""

import datetime as dt
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from e2e_site import Site, graph, wait_for

pytestmark = [pytest.mark.service, pytest.mark.needs("nginx")]

SITE = """
daemon off; error_log {root}/error.log info; pid {root}/nginx.pid; worker_processes 1;
events {{ worker_connections 64; }}
http {{
  client_body_temp_path {root}/b; proxy_temp_path {root}/p; fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;
  log_format told '$scheme $request_method $uri $status $http_upgrade';
  access_log {root}/access.log told;
  map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}
  server {{
    listen 127.0.0.1:{port} ssl; server_name localhost;
    ssl_certificate {root}/leaf.pem; ssl_certificate_key {root}/leaf.key;
    location / {{
      proxy_pass {upstream}; proxy_http_version 1.1; proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;
      proxy_read_timeout 30s; proxy_send_timeout 30s;
    }}
  }}
}}
"""


def certificate(root: Path) -> Path:
    """A CA and a leaf for localhost below ``root``; the CA's file."""
    now = dt.datetime.now(dt.UTC)

    def build(name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=5))
            .not_valid_after(now + dt.timedelta(days=2))
        )

    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test CA")])
    ca_key, leaf_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = (
        build("test CA", ca_name, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    leaf = (
        build("localhost", ca_name, leaf_key)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    (root / "ca.pem").write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    (root / "leaf.pem").write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    (root / "leaf.key").write_bytes(
        leaf_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return root / "ca.pem"


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def reload(root: Path) -> None:
    """Let new connections of the proxy have the certificate that lies there now."""
    os.kill(int((root / "nginx.pid").read_text()), signal.SIGHUP)


@pytest.fixture
def proxy(site: Site, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of an nginx with TLS in front of the site's server, and its folder."""
    site.start_server()
    root = tmp_path / "proxy"
    root.mkdir()
    certificate(root)
    port = free_port()
    (root / "nginx.conf").write_text(SITE.format(root=root, port=port, upstream=site.url))
    nginx = shutil.which("nginx") or "/usr/sbin/nginx"
    command = [nginx, "-c", str(root / "nginx.conf"), "-p", str(root), "-e", str(root / "error.log")]
    if os.geteuid() == 0:
        command += ["-g", "user root;"]
    process = subprocess.Popen(command)
    try:
        wait_for((root / "nginx.pid").exists, 20, "nginx")
        yield f"https://localhost:{port}", root
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.spec("reach/socket-scheme-follows-url")
def test_an_https_address_carries_enrollment_socket_and_runs_over_tls(
    site: Site, proxy: tuple[str, Path]
) -> None:
    address, root = proxy
    agent = site.spawn(
        "agent",
        [
            *("-m", "codefyui_core.cli", "agent", "start", "--foreground", "--control", address),
            *("--token", site.enroll_token(), "--name", "far"),
        ],
        user_data=site.root / "agent-far",
        SSL_CERT_FILE=str(root / "ca.pem"),
    )
    wait_for(lambda: site.worker("far")["status"] == "online", 90, f"online:\n{agent.said()}")
    run_id = site.submit(graph("TrialCount", {"n": 3}), target="far")
    site.wait_status(run_id, "succeeded")
    assert agent.terminate() == 0
    told = wait_for(
        lambda: (lines := (root / "access.log").read_text().splitlines()) and len(lines) >= 2 and lines,
        20,
        "the socket in the proxy's log",
    )
    assert told[0].startswith("https POST /api/workers/enroll 200")
    assert [line for line in told if line == "https GET /ws/worker 101 websocket"]
    assert "unencrypted" not in agent.said()


def test_a_certificate_that_the_machine_does_not_trust_is_refused_before_the_token_is_sent(
    site: Site, proxy: tuple[str, Path]
) -> None:
    address, root = proxy
    agent = site.spawn(
        "agent",
        [
            *("-m", "codefyui_core.cli", "agent", "start", "--foreground", "--control", address),
            *("--token", site.enroll_token(), "--name", "far"),
        ],
        user_data=site.root / "agent-far",
    )
    assert agent.wait(60) == 1
    assert "certificate" in agent.said()
    assert "Traceback" not in agent.said()
    assert not (root / "access.log").read_text()


def test_a_file_is_not_sent_to_a_certificate_that_is_not_trusted_and_goes_on_when_it_is(
    site: Site, proxy: tuple[str, Path], tmp_path: Path
) -> None:
    address, root = proxy
    agent = site.start_agent(
        "far",
        "--control",
        address,
        elsewhere=True,
        CODEFYUI_DATA_DIR=str(tmp_path / "own"),
        CODEFYUI_CUSTOM_NODES_DIR=str(site.data / "custom_nodes"),
        SSL_CERT_FILE=str(root / "ca.pem"),
    )
    go_on = tmp_path / "go-on"
    steps = json.dumps([("hold", str(go_on)), ("write", "output/a.bin", 1, 1000)])
    run_id = site.submit(graph("TrialCarry", {"file": "", "steps": steps}), target="far")
    site.wait_status(run_id, "running")
    other, log = tmp_path / "other", root / "access.log"
    other.mkdir()
    certificate(other)
    trusted = {name: (root / name).read_bytes() for name in ("leaf.pem", "leaf.key")}
    for name in trusted:
        (root / name).write_bytes((other / name).read_bytes())
    reload(root)
    wait_for(lambda: shown(address) == (other / "leaf.pem").read_text(), 20, "the other certificate")
    go_on.touch()
    wait_for(lambda: "certificate" in agent.said(), 60, f"the agent to refuse it:\n{agent.said()}")
    assert "/upload" not in log.read_text()
    assert site.run(run_id)["status"] == "running"
    for name, data in trusted.items():
        (root / name).write_bytes(data)
    reload(root)
    site.wait_status(run_id, "succeeded")
    assert [line for line in log.read_text().splitlines() if "/upload 200" in line]
    (row,) = site.get(f"/api/runs/{run_id}/artifacts")
    assert (row["backend"], row["state"]) == ("transfer", "stored")


def shown(address: str) -> str:
    """The certificate that a new connection is shown."""
    host, _, port = address.removeprefix("https://").partition(":")
    return ssl.get_server_certificate((host, int(port)), timeout=5)
