"""Options of `vsemb.serving.access.Access`, for `vsemb demo`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from vsemb.commands import picked

if TYPE_CHECKING:
    from vsemb.serving.access import Access


def configure_access(parser: argparse.ArgumentParser) -> None:
    """Add the options of `vsemb.serving.access.Access`."""
    token = "file with the token that requests must carry (environment variable VSEMB_TOKEN)"
    parser.add_argument("--token-file", metavar="FILE", help=token)
    parser.add_argument("--tls-cert", metavar="PEM", help="certificate and its chain, for TLS")
    parser.add_argument("--tls-key", metavar="PEM", help="private key of the certificate")
    insecure = "allow other addresses than loopback without a token"
    parser.add_argument("--insecure", action="store_true", help=insecure)


def access(arguments: argparse.Namespace) -> Access:
    """Return the token and certificate of the server, from the options of `configure_access`."""
    from vsemb.serving.access import Access, read_token

    return Access(read_token(arguments.token_file), **picked(arguments, "tls_cert", "tls_key", "insecure"))
