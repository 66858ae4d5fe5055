"""Contexts of raybus's own TLS connections."""

import contextlib
import datetime
import ssl
import tracemalloc
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from common.clock import SystemClock
from common.tls import MAX_RECORD_SIZE, create_client_context
from nats_admin.certificates import CertificatePair, make_ca, make_server_certificate


@pytest.fixture
def authority() -> CertificatePair:
    return make_ca(now=SystemClock().now())


def connect(
    client: ssl.SSLContext, authority: CertificatePair, folder: Path
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Return the client's and the server's end of a connection after the handshake."""
    server = make_server_certificate(authority, names=["nats"], now=SystemClock().now())
    return connect_to(server, client, folder)


def connect_to(
    server: CertificatePair, client: ssl.SSLContext, folder: Path
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Return both ends of a connection to a server that has this certificate."""
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
    other = make_ca(now=SystemClock().now())
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


Signer = tuple[x509.Name, ec.EllipticCurvePrivateKey]


def sign(name: str, signer: Signer | None, extension: x509.ExtensionType) -> tuple[bytes, Signer]:
    """Return a certificate with one extension, and what signs others with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signing = signer or (subject, key)
    now = SystemClock().now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        .sign(signing, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.PEM), (subject, key)


def serve(signer: Signer) -> CertificatePair:
    """Return a server's certificate without a key identifier."""
    names = x509.SubjectAlternativeName([x509.DNSName("nats")])
    certificate, (_, key) = sign("server", signer, names)
    encoded = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return CertificatePair(certificate, encoded)


def create_strict_context(*, cadata: str | None = None, cafile: object = None) -> ssl.SSLContext:
    """Return what `ssl.create_default_context` returns since Python 3.13."""
    assert cafile is None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=cadata)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def test_the_authority_of_an_older_cluster_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Basic constraints are the only extension, as in the authority of an older EKS cluster.
    constraints = x509.BasicConstraints(ca=True, path_length=None)
    authority, signer = sign("kubernetes", None, constraints)
    server = serve(signer)
    trusted = authority.decode()
    with pytest.raises(ssl.SSLCertVerificationError):
        connect_to(server, create_strict_context(cadata=trusted), tmp_path)
    monkeypatch.setattr(ssl, "create_default_context", create_strict_context)
    context = create_client_context(cadata=trusted)
    monkeypatch.undo()
    client, _ = connect_to(server, context, tmp_path)
    assert client.version() is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_an_intermediate_authority_is_trusted_without_its_issuer(tmp_path: Path) -> None:
    constraints = x509.BasicConstraints(ca=True, path_length=None)
    _, root = sign("root", None, constraints)
    intermediate, signer = sign("intermediate", root, constraints)
    context = create_client_context(cadata=intermediate.decode())
    client, _ = connect_to(serve(signer), context, tmp_path)
    assert client.version() is not None
