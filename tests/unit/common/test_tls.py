"""Contexts of raybus's own TLS connections."""

import contextlib
import ssl
import tracemalloc
from pathlib import Path

import pytest

from common.clock import SystemClock
from common.tls import MAX_RECORD_SIZE, create_client_context
from nats_admin.certificates import CertificatePair, make_authority, make_server_certificate


@pytest.fixture
def authority() -> CertificatePair:
    return make_authority(now=SystemClock().now())


def connect(
    client: ssl.SSLContext, authority: CertificatePair, folder: Path
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Return the client's and the server's end of a connection after the handshake."""
    server = make_server_certificate(authority, names=["nats"], now=SystemClock().now())
    file = folder / "server.pem"
    file.write_bytes(server.certificate + server.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    inbound, outbound = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(inbound, outbound, server_hostname="nats"),
        context.wrap_bio(outbound, inbound, server_side=True),
    )
    for _ in range(3):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends


def test_a_read_allocates_one_record_at_most(authority: CertificatePair, tmp_path: Path) -> None:
    context = create_client_context(cadata=authority.certificate.decode())
    client, server = connect(context, authority, tmp_path)
    sent = bytes(40_000)
    server.write(sent)
    tracemalloc.start()
    try:
        records = [client.read(262_144) for _ in range(3)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [len(record) for record in records[:2]] == [MAX_RECORD_SIZE, MAX_RECORD_SIZE]
    assert b"".join(records) == sent
    assert peak < 131_072
    assert client.pending() == 0
    with pytest.raises(ssl.SSLWantReadError):
        client.read(262_144)


def test_an_unknown_authority_is_not_trusted(authority: CertificatePair, tmp_path: Path) -> None:
    other = make_authority(now=SystemClock().now())
    (tmp_path / "ca.crt").write_bytes(other.certificate)
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(create_client_context(cafile=tmp_path / "ca.crt"), authority, tmp_path)


def test_without_authorities_the_systems_are_trusted(
    authority: CertificatePair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "system.crt").write_bytes(authority.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.crt"))
    client, _ = connect(create_client_context(), authority, tmp_path)
    assert client.version() is not None
