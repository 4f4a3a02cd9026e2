"""The act `vsemb.serve_demo`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from vsemb.acts import Fields, act, additions
from vsemb.demo.options import DemoOption
from vsemb.parts import Port

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.runs.run import Run


@act
def serve_demo(
    run: Run | str | os.PathLike[str],
    *,
    data: StoredDataset | str | os.PathLike[str] | None = None,
    split: str = "all",
    host: str = "127.0.0.1",
    port: Port = 7860,
    open_browser: bool = False,
    token_file: str | os.PathLike[str] | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    insecure: bool = False,
    **options: Annotated[Any, Fields("demo option")],
) -> NoReturn:
    """Serve a demo page for a run: search by sentence or image, arithmetic, comparison.

    The page loads nothing from other hosts. The first start builds an index of images and captions, see `vsemb index`.
    Runs that do not support an index embed them at every start. Dropped images are stored in a temporary directory,
    which is deleted at the end. Press Ctrl-C to end the server.

    On an address other than loopback, browsers ask for a name and a password. The password is the token.

    Args:
        run: a run, or its directory.
        data: dataset to search; default: the training dataset.
        split: split to search, or all.
        host: address to listen on.
        port: port; 0 for any free port.
        open_browser: open the page in a browser.
        token_file: file with the token that requests must carry; default: the environment variable VSEMB_TOKEN.
        tls_cert: certificate and its chain, for TLS.
        tls_key: private key of the certificate.
        insecure: allow other addresses than loopback without a token.
        **options: fields of options that systems bring.

    Raises:
        MissingExtraError: without Gradio, which the extra `demo` installs.
        InvalidArgumentError: for a port in use, or an address other than loopback without a token.
        VsembError: if run and dataset do not match.
        KeyboardInterrupt: when interrupted, after everything is closed.

    Example:

        vsemb.serve_demo("runs/mine", port=0, open_browser=True)
    """
    from vsemb.demo.server import serve_page
    from vsemb.runs.run import Run
    from vsemb.serving.access import Access, read_token

    captioning = [option.captioning() for option in additions(DemoOption, options)]
    opened = Run.open(run)
    serve_page(
        opened,
        opened.open_data(data),
        split=split,
        host=host,
        port=port,
        open_browser=open_browser,
        captioning=next(filter(None, captioning), None),
        access=Access(read_token(token_file), tls_cert, tls_key, insecure),
        report=lambda line: print(line, flush=True),
    )
