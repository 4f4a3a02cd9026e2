"""Signed contracts: made with one key, checked with its public half, and refused before a model is opened."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from vsemb.errors import DataError, MissingExtraError
from vsemb.exporting.contract import hashes, version_contract_path
from vsemb.exporting.signing import read_key, require_signature, sign, signature_path
from vsemb.exporting.verify import verify_model


def pair(folder: Path, name: str, key=None) -> tuple[Path, Path]:
    key = key or Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Path, Path]:
    """A version whose contract is signed, and the public key."""
    version = tmp_path / "model" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").write_bytes(b"no graph")
    private, public = pair(tmp_path, "own")
    version_contract_path(version).parent.mkdir()
    version_contract_path(version).write_text('{"a": 1}')
    assert sign(version, private) == signature_path(version)
    return version, public


def test_a_signature_is_of_one_contract_and_one_key(signed: tuple[Path, Path], tmp_path: Path) -> None:
    version, public = signed
    key = read_key(public, private=False)
    contract = version_contract_path(version)
    require_signature(version, contract, key)
    # The signature is no file that the contract lists.
    assert set(hashes(version)) == {"saved_model.pb"}
    stranger = read_key(pair(tmp_path, "stranger")[1], private=False)
    with pytest.raises(DataError, match="Do not open this model"):
        require_signature(version, contract, stranger)
    contract.write_text('{"a": 2}')
    with pytest.raises(DataError, match="Do not open this model"):
        require_signature(version, contract, key)
    for content in (b"", b"no base64!", b"AAAA"):
        signature_path(version).write_bytes(content)
        with pytest.raises(DataError, match="Do not open this model"):
            require_signature(version, contract, key)
    signature_path(version).unlink()
    with pytest.raises(DataError, match="must be signed, but lacks contract.json.sig"):
        require_signature(version, contract, key)


def test_nothing_is_run_before_signature_and_files_are_right(
    signed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    version, public = signed

    class Agreed:
        sha256 = hashes(version)
        golden: dict = {}

    def forbidden(*arguments: object) -> list:
        raise AssertionError("the model was opened")

    path = version_contract_path(version)
    monkeypatch.setattr("vsemb.exporting.verify._contract", lambda *arguments: (path, Agreed, []))
    monkeypatch.setattr("vsemb.exporting.verify._probe", lambda *arguments: [])
    assert [check.check for check in verify_model(version.parent, key=public).checks] == ["files", "signature"]
    monkeypatch.setattr("vsemb.exporting.verify._probe", forbidden)
    (version / "saved_model.pb").write_bytes(b"another graph")
    with pytest.raises(DataError, match="must hold the signed files: saved_model.pb differs from the contract"):
        verify_model(version.parent, key=public)
    signature_path(version).unlink()
    with pytest.raises(DataError, match="must be signed"):
        verify_model(version.parent, key=public)


def test_keys_of_another_kind(signed: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, public = pair(tmp_path, "curve", generate_private_key(SECP256R1()))
    with pytest.raises(DataError, match="must be a private Ed25519 key; got EC"):
        read_key(private, private=True)
    with pytest.raises(DataError, match="must be a public Ed25519 key in PEM"):
        read_key(private, private=False)
    with pytest.raises(DataError, match="private key .* cannot be read: No such file"):
        read_key(tmp_path / "none", private=True)
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'vsemb\[sign\]'"):
        read_key(public, private=False)
