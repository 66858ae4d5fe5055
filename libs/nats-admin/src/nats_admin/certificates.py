"""Creates and reads certificates of NATS servers and of the CAs that sign them."""

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLOCK_SKEW: Final = timedelta(hours=1)
LIFETIME: Final = timedelta(days=3650)
"""Validity of new certificates: ten years. Only one installation of raybus trusts them."""
RENEW_BEFORE: Final = timedelta(days=30)
"""Remaining validity below which a certificate that raybus made is replaced."""


USES: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


class CertificatePair(msgspec.Struct, frozen=True):
    """A certificate and its private key, in PEM."""

    certificate: bytes
    key: bytes


def make_ca(*, now: datetime, lifetime: timedelta = LIFETIME) -> CertificatePair:
    """Return a new, self-signed CA certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "raybus NATS authority")])
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _prepare_builder(name, name, key.public_key(), (now - CLOCK_SKEW, now + lifetime))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return CertificatePair(certificate.public_bytes(Encoding.PEM), _encode_key(key))


def make_server_certificate(
    ca: CertificatePair,
    *,
    names: Sequence[str],
    now: datetime,
    lifetime: timedelta = LIFETIME,
) -> CertificatePair:
    """Return a new server certificate for host names and IP addresses, signed by the CA.

    NATS servers also use it as a client certificate when they connect to each other.
    """
    issuer = x509.load_pem_x509_certificate(ca.certificate)
    signer = serialization.load_pem_private_key(ca.key, password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError("the authority's key is of another kind than we write")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nats")])
    certificate = (
        _prepare_builder(
            subject, issuer.subject, key.public_key(), (now - CLOCK_SKEW, now + lifetime)
        )
        .add_extension(
            x509.SubjectAlternativeName([_make_alternative_name(name) for name in names]),
            critical=False,
        )
        .add_extension(x509.ExtendedKeyUsage(USES), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    return CertificatePair(certificate.public_bytes(Encoding.PEM), _encode_key(key))


def is_signed_by(certificate: bytes, ca: bytes) -> bool:
    """Return whether the CA certificate `ca` has signed `certificate`. Both are PEM."""
    try:
        x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(
            x509.load_pem_x509_certificate(ca)
        )
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def read_names(certificate: bytes) -> list[str]:
    """Return the host names and IP addresses for which a PEM certificate is valid."""
    parsed = x509.load_pem_x509_certificate(certificate)
    try:
        names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in names]


def read_end(certificate: bytes) -> datetime:
    """Return the end of validity of a PEM certificate."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def is_for_routes(certificate: bytes) -> bool:
    """Return whether a NATS server may use a PEM certificate for connections to other servers.

    The certificate needs both extended key usages, server and client authentication, or none.
    """
    parsed = x509.load_pem_x509_certificate(certificate)
    try:
        return set(USES) <= set(
            parsed.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        )
    except x509.ExtensionNotFound:
        return True


def _prepare_builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    valid: tuple[datetime, datetime],
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid[0])
        .not_valid_after(valid[1])
    )


def _make_alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _encode_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
