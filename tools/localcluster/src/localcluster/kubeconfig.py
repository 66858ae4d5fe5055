"""Certificates, keys, tokens and kubeconfigs of one cluster.

They are generated for each run, and only their owner can read them. One CA signs the certificates
of the API server and the kubelet, and the client certificate that the API server presents to the
kubelet. Users and components authenticate by tokens with their real user and group names, so that
RBAC applies to them.
"""

import base64
import datetime
import ipaddress
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from localcluster.errors import MisuseError

MASTERS = "system:masters"

_LIFETIME = datetime.timedelta(days=365)
_CLOCK_SKEW = datetime.timedelta(hours=1)


class TokenIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The user and the groups that a token stands for."""

    user: str
    groups: tuple[str, ...] = ()


IDENTITIES: dict[str, TokenIdentity] = {
    "admin": TokenIdentity(user="admin", groups=(MASTERS,)),
    # One account for all controllers, because of `--use-service-account-credentials=false`. It
    # saves seconds at the start.
    "controller-manager": TokenIdentity(user="system:kube-controller-manager", groups=(MASTERS,)),
    "scheduler": TokenIdentity(user="system:kube-scheduler"),
    "proxy": TokenIdentity(user="system:kube-proxy"),
    "coredns": TokenIdentity(user="system:coredns"),
    "kwok": TokenIdentity(user="kwok", groups=(MASTERS,)),
    "envoy-gateway": TokenIdentity(user="envoy-gateway", groups=(MASTERS,)),
}


class ClusterPki(msgspec.Struct, frozen=True, kw_only=True):
    """The folder with a cluster's certificates and keys, and the token of each component."""

    folder: Path
    tokens: dict[str, str]

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def token_file(self) -> Path:
        """File for `--token-auth-file` of the API server."""
        return self.folder / "tokens.csv"

    @property
    def public_key(self) -> Path:
        """File with the public key that verifies ServiceAccount tokens."""
        return self.folder / "service-accounts.pub"

    def certificate(self, name: str) -> Path:
        """Return the path of the certificate `apiserver`, `kubelet` or `apiserver-to-kubelet`."""
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        """Return the path of the private key of a certificate, or of the key `service-accounts`."""
        return self.folder / f"{name}.key"


def create(folder: Path, *, addresses: Sequence[str], node: str) -> ClusterPki:
    """Write a new CA, certificates and tokens into `folder`.

    `addresses` are the IP addresses of the API server and the kubelet; `node` is the node's name.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Certificates are valid from the wall clock's present time.
    authority = _Authority(datetime.datetime.now(datetime.UTC))  # noqa: TID251
    pki = ClusterPki(
        folder=folder, tokens={name: secrets.token_hex(24) for name in [*IDENTITIES, "node"]}
    )
    write_private(pki.ca, authority.certificate.public_bytes(serialization.Encoding.PEM))
    names = [
        *("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
        "kubernetes.default.svc.cluster.local",
    ]
    authority.issue(
        pki, "apiserver", subject=("kube-apiserver", None), alternatives=[*names, *addresses]
    )
    authority.issue(
        pki,
        "kubelet",
        subject=(f"system:node:{node}", "system:nodes"),
        alternatives=[node, *addresses],
    )
    authority.issue(
        pki,
        "apiserver-to-kubelet",
        subject=("kube-apiserver-kubelet-client", MASTERS),
        alternatives=[],
    )
    signing = ec.generate_private_key(ec.SECP256R1())
    write_private(pki.key("service-accounts"), _encode_private_key(signing))
    public = signing.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    write_private(pki.public_key, public)
    identities = {
        **IDENTITIES,
        "node": TokenIdentity(user=f"system:node:{node}", groups=("system:nodes",)),
    }
    lines = [
        f'{pki.tokens[name]},{identity.user},{identity.user},"{",".join(identity.groups)}"'
        for name, identity in identities.items()
    ]
    write_private(pki.token_file, ("\n".join(lines) + "\n").encode())
    return pki


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, even while it is being written."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(content)


class _Authority:
    """The certificate authority of one cluster. Its private key is never written to a file."""

    def __init__(self, now: datetime.datetime) -> None:
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "raybus local cluster")])
        public = self._key.public_key()
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        self.certificate = (
            self._prepare_builder(self._name, public)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    def issue(
        self,
        pki: ClusterPki,
        name: str,
        *,
        subject: tuple[str, str | None],
        alternatives: Sequence[str],
    ) -> None:
        """Write a new certificate for server and client authentication, and its key.

        `subject` is the common name and the organization; `alternatives` are host names and IP
        addresses.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        common_name, organization = subject
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organization is not None:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        usage = x509.ExtendedKeyUsage(
            [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        )
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            self._prepare_builder(x509.Name(attributes), key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=False)
            .add_extension(authority_key, critical=False)
        )
        if alternatives:
            names = x509.SubjectAlternativeName(
                [_parse_general_name(value) for value in alternatives]
            )
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        write_private(pki.certificate(name), certificate.public_bytes(serialization.Encoding.PEM))
        write_private(pki.key(name), _encode_private_key(key))

    def _prepare_builder(
        self, subject: x509.Name, public: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _CLOCK_SKEW)
            .not_valid_after(self._now + _LIFETIME)
        )


def _parse_general_name(value: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(value))
    except ValueError:
        return x509.DNSName(value)


def _encode_private_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The URL of an API server, its CA, and a token for it."""

    server: str
    ca: bytes
    """CA certificate in PEM format."""
    token: str


def build(name: str, access: Access, *, namespace: str = "default") -> dict[str, Any]:
    """Return a kubeconfig with embedded CA and token, so that the file can be copied elsewhere.

    `name` names its cluster, user and context.
    """
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": access.server,
                    "certificate-authority-data": base64.b64encode(access.ca).decode(),
                },
            }
        ],
        "users": [{"name": name, "user": {"token": access.token}}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}
        ],
    }


def write(path: Path, name: str, access: Access, *, namespace: str = "default") -> Path:
    """Write a kubeconfig that only its owner can read; return its path."""
    write_private(
        path, yaml.safe_dump(build(name, access, namespace=namespace), sort_keys=False).encode()
    )
    return path


def read_access(path: Path) -> Access:
    """Read URL, CA and token from a kubeconfig that `write` made."""
    document: Any = yaml.safe_load(path.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    ca = base64.b64decode(cluster["certificate-authority-data"])
    return Access(server=cluster["server"], ca=ca, token=user["token"])


def check_readable(path: Path) -> str:
    """Return the URL of the API server in the current context of a user's kubeconfig.

    Raises `MisuseError` if the file is unusable.
    """
    try:
        document: Any = yaml.safe_load(path.read_text())
    except OSError as error:
        raise MisuseError(
            f"cannot read kubeconfig {path}: {error.strerror}; name a readable file with "
            "--kubeconfig"
        ) from error
    except yaml.YAMLError as error:
        raise MisuseError(
            f"kubeconfig {path} is not YAML; name another file with --kubeconfig"
        ) from error
    try:
        current = document["current-context"]
        context = next(
            entry["context"] for entry in document["contexts"] if entry["name"] == current
        )
        cluster = next(
            entry["cluster"]
            for entry in document["clusters"]
            if entry["name"] == context["cluster"]
        )
        return str(cluster["server"])
    except (KeyError, TypeError, StopIteration) as error:
        raise MisuseError(
            f"kubeconfig {path} has no usable current-context; choose one with 'kubectl config "
            "use-context'"
        ) from error
