"""The act `vsemb.serve_demo`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from vsemb.acts import Fields, act, additions
from vsemb.demo.options import DemoOption
from vsemb.parts import Port

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.runs.run import Run


@act
def serve_demo(
    source: Run | str | os.PathLike[str],
    *,
    images: Sequence[str | os.PathLike[str]] | None = None,
    data: StoredDataset | str | os.PathLike[str] | None = None,
    split: str | None = None,
    run: str | os.PathLike[str] | None = None,
    host: str = "127.0.0.1",
    port: Port = 7860,
    open_browser: bool = False,
    token_file: str | os.PathLike[str] | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    insecure: bool = False,
    **options: Annotated[Any, Fields("demo option")],
) -> NoReturn:
    """Serve a search page: by sentence or image, with arithmetic and comparison.

    The page searches a dataset, the image files in `images`, or the images of an index from `vsemb index`. Image files
    need no captions.

    The first start builds an index, see `vsemb index`. A later start with the same image files embeds only new and
    changed ones. Runs that do not support an index embed a dataset at every start. The address of a search ends in
    `?q=TEXT` and can be sent to others who reach the server.

    The page loads nothing from other hosts. Dropped images are stored in a temporary directory, which is deleted at the
    end. Press Ctrl-C to end the server.

    On an address other than loopback, browsers ask for a name and a password. The password is the token.

    Args:
        source: a run, its directory, the name of a pretrained model, such as `hub:clip_vit_base_patch32`, or the
            directory of an index of images.
        images: image files without captions: directories, globs, files, .txt lists.
        data: dataset to search; default: the training dataset, or that of the index.
        split: split to search, or all; default: all.
        run: run of the index, if the run was moved.
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
        InvalidArgumentError: for a port in use, an address other than loopback without a token, or arguments that do
            not fit each other.
        VsembError: if run and pictures do not match, or the folder lacks pictures.
        KeyboardInterrupt: when interrupted, after everything is closed.

    Example:

        vsemb.serve_demo("runs/mine", port=0, open_browser=True)
        vsemb.serve_demo("hub:clip_vit_base_patch32", images=["photos"])
    """
    from vsemb.demo.pictures import open_source
    from vsemb.demo.server import serve_page
    from vsemb.serving.access import Access, read_token

    captioning = [option.captioning() for option in additions(DemoOption, options)]

    def say(line: str) -> None:
        print(line, flush=True)

    opened, pictures = open_source(source, run=run, data=data, split=split, images=images, report=say)
    serve_page(
        opened,
        pictures,
        host=host,
        port=port,
        open_browser=open_browser,
        captioning=next(filter(None, captioning), None),
        access=Access(read_token(token_file), tls_cert, tls_key, insecure),
        report=say,
    )
