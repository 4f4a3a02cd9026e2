"""Ed25519 signatures of contracts. They prove who exported a model and, by its file hashes, that it is unchanged."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any

from vsemb.errors import DataError, needs_extra, one_line
from vsemb.exporting.contract import version_contract_path
from vsemb.files import read_bytes, reading, write_text

# Signed with the contract, so that another document signed with the same key is not accepted as a contract.
_PURPOSE = b"vsemb contract\n"


def signature_path(version: str | os.PathLike[str]) -> Path:
    """Return the path of the signature inside a version's directory."""
    return version_contract_path(Path(version)).with_suffix(".json.sig")


def sign(version: str | os.PathLike[str], key: str | os.PathLike[str]) -> Path:
    """Sign the contract of an exported version.

    Args:
        version: directory of the version, e.g. `savedmodels/flickr8k/1`.
        key: PEM file of a private Ed25519 key, from `openssl genpkey -algorithm ed25519`.

    Returns:
        The file of the signature.

    Raises:
        DataError: if the key or the contract cannot be read.
        MissingExtraError: if the extra `sign` is not installed.
    """
    private = read_key(key, private=True)
    contract = version_contract_path(Path(version))
    with reading(contract, "contract"):
        signed = private.sign(_PURPOSE + read_bytes(contract))
    write_text(signature_path(version), base64.b64encode(signed).decode() + "\n")
    return signature_path(version)


def require_signature(version: str | os.PathLike[str], contract: str | os.PathLike[str], key: Any) -> None:
    """Check that a version's signature is a valid signature of its contract.

    Args:
        version: directory of the version.
        contract: file of the contract.
        key: a public key from `read_key`.

    Raises:
        DataError: for a missing, malformed or wrong signature.
    """
    from cryptography.exceptions import InvalidSignature

    path = signature_path(version)
    if not path.is_file():
        raise DataError(
            f"{version} must be signed, but lacks {path.name}. Sign it with: vsemb export RUN OUT --sign KEY"
        )
    try:
        with reading(path, "signature"), reading(contract, "contract"):
            signed = base64.b64decode(read_bytes(path).strip(), validate=True)
            key.verify(signed, _PURPOSE + read_bytes(contract))
    except (InvalidSignature, binascii.Error) as error:
        raise DataError(
            f"The signature {path} must be of {contract} and of the owner of `key`. Do not open this model."
        ) from error


def read_key(path: str | os.PathLike[str], *, private: bool) -> Any:
    """Read a PEM file with a private or public Ed25519 key, without password.

    Raises:
        DataError: if the file cannot be read or is another kind of key.
        MissingExtraError: if the extra `sign` is not installed.
    """
    with needs_extra("cryptography", "sign"):
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
    kind = "private" if private else "public"
    with reading(path, f"{kind} key"):
        content = read_bytes(path)
    make = "openssl genpkey -algorithm ed25519 -out key.pem" if private else "openssl pkey -in key.pem -pubout"
    try:
        key = load_pem_private_key(content, None) if private else load_pem_public_key(content)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise DataError(
            f"{path} must be a {kind} Ed25519 key in PEM: {one_line(error, 100)}. Make one with: {make}"
        ) from error
    if not isinstance(key, Ed25519PrivateKey if private else Ed25519PublicKey):
        raise DataError(f"{path} must be a {kind} Ed25519 key; got {type(key).__name__}. Make one with: {make}")
    return key
