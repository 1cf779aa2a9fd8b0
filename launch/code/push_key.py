"""A key for one push, by which its nodes authenticate to one another."""

from __future__ import annotations

import datetime

__all__ = ["make_credential"]


def make_credential() -> str:
    """Return a fresh private key and its certificate, in PEM, valid from a day ago to a day ahead.

    >>> [line.strip("-") for line in make_credential().splitlines() if "BEGIN" in line]
    ['BEGIN PRIVATE KEY', 'BEGIN CERTIFICATE']
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ranklift push")])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)  # clocks differ
        .not_valid_after(now + day)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return (private + certificate.public_bytes(pem)).decode()
