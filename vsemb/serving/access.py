"""Access to a server: bearer tokens and TLS. Without a token, other machines cannot call it, unless `insecure`."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import os
import re
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from vsemb.errors import DataError, InvalidArgumentError, invalid_argument, reason_of
from vsemb.files import read_text, require_regular

#: Environment variable with the token, for servers and clients.
TOKEN = "VSEMB_TOKEN"

# Token of RFC 6750, long enough that it cannot be guessed.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,}=*")


@dataclass(frozen=True, repr=False)
class Access:
    """The token and certificate of a server.

    Args:
        token: bearer token that every request must carry; None for no token.
        tls_cert: PEM file with the certificate and its chain; None for no encryption.
        tls_key: PEM file with the private key, without a password.
        insecure: whether the server may listen on any address without a token, for example behind a gateway that
            authenticates.

    Raises:
        InvalidArgumentError: for a malformed token, or one of `tls_cert` and `tls_key` without the other.
        DataError: if the certificate or its key cannot be read.

    Example:

    >>> access = Access("0123456789abcdef")
    >>> access.allows("Bearer 0123456789abcdef"), access.allows("Bearer 0123456789abcdeF"), access.allows("")
    (True, False, False)
    """

    token: str | None = None
    tls_cert: str | os.PathLike[str] | None = None
    tls_key: str | os.PathLike[str] | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        require_token(self.token)
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls_key" if self.tls_key is None else "tls_cert"
            raise invalid_argument(missing, None, "a PEM file, since the certificate and its key belong together")
        self.ssl_context()

    @property
    def encrypted(self) -> bool:
        """Whether connections use TLS."""
        return self.tls_cert is not None

    def require_for(self, host: str) -> None:
        """Check that an address that other machines can reach is protected by a token.

        Raises:
            InvalidArgumentError: for such an address without a token, unless `insecure` is set.
        """
        if not (self.token or self.insecure or is_loopback(host)):
            raise invalid_argument(
                "host",
                host,
                "127.0.0.1, since other machines reach this address and no token is set",
                f"Set {TOKEN}, or name a file as `token_file`, with the output of: openssl rand -hex 32. Behind a "
                "gateway that authenticates, set `insecure`.",
            )

    def allows(self, authorization: str) -> bool:
        """Return whether a request has the token; compares in constant time.

        Args:
            authorization: the request's header `Authorization`: `Bearer TOKEN`, or `Basic` with the token as password,
                which browsers send.
        """
        if self.token is None:
            return True
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() == "basic":
            try:
                given = base64.b64decode(given, validate=True).decode("utf-8").partition(":")[2]
            except (binascii.Error, ValueError):
                return False
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(given.strip().encode(errors="surrogatepass"), self.token.encode())

    def accepts_host(self, named: str, listening: str) -> bool:
        """Return whether a request may name a host.

        A web page can bind its own name to this machine (DNS rebinding), so without a token, a server on loopback only
        answers to names of this machine. `insecure` accepts every name, for a gateway that passes on its own.

        Args:
            named: the request's header `Host`; "" for none, which no browser sends.
            listening: the address that the server listens on.

        Example:

        >>> [OPEN.accepts_host(named, "127.0.0.1") for named in ("localhost:8501", "[::1]:8501", "", "example.org")]
        [True, True, True, False]
        """
        if not named or self.token or self.insecure or not is_loopback(listening):
            return True
        try:
            return is_loopback((urlsplit(f"//{named}").hostname or "").rstrip("."))
        except ValueError:
            return False

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the context of a server with TLS; None without a certificate."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            for file in (self.tls_cert, self.tls_key):
                require_regular(file)
            # Otherwise OpenSSL asks for the password of a key in the terminal.
            context.load_cert_chain(self.tls_cert, self.tls_key, password=lambda: "")
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or reason_of(error)
            raise DataError(
                f"{self.tls_cert} and {self.tls_key} must be a PEM certificate and its key, without password: {reason}."
            ) from error
        return context


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address.

    Example:

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "example.org")]
    [True, True, True, False, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def require_token(token: str | None) -> None:
    """Check the form of a token; None is allowed.

    Raises:
        InvalidArgumentError: for a malformed token; the message does not contain it.
    """
    if token is not None and not (isinstance(token, str) and _TOKEN.fullmatch(token)):
        raise InvalidArgumentError(
            "`token` must be at least 16 letters, digits or -._~+/ without spaces. Make one with: openssl rand -hex 32"
        )


def read_token(file: str | os.PathLike[str] | None = None) -> str | None:
    """Return the token of a file, or of the environment variable `VSEMB_TOKEN`.

    Args:
        file: file that holds only the token; None for the environment variable.

    Returns:
        The token; None without either.

    Raises:
        DataError: if the file cannot be read.
    """
    if file is None:
        return os.environ.get(TOKEN) or None
    try:
        return read_text(file).strip()
    except (OSError, ValueError) as error:
        raise DataError(f"Cannot read the token of {file}: {reason_of(error)}.") from error


#: Access without a token or TLS, on loopback only.
OPEN = Access()
