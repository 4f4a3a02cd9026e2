"""The address of the demonstration page: this machine alone, and nothing on the page from another.

Gradio would look for its newest version, count its users, and offer a public link; none of it is on. A
content security policy tells the browser to ask nobody but this server, whatever Gradio's page may hold.
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from vsemb.data.store import Dataset
from vsemb.demo.page import build_page, open_tabs
from vsemb.errors import DataError, invalid_argument, needs_extra
from vsemb.runs.indexing import ALL
from vsemb.runs.run import Run

HOST = "127.0.0.1"
_ENVIRONMENT = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
}
# Gradio compiles its templates in the browser and has scripts within its page.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
    "worker-src 'self' blob:; frame-ancestors 'none'; form-action 'self'; base-uri 'self'; object-src 'none'"
)
_MAX_UPLOAD = "32mb"
_GRACE = 2


def serve_demo(
    run: Run,
    dataset: Dataset,
    *,
    split: str = ALL,
    port: int = 7860,
    open_browser: bool = False,
    report: Callable[[str], None] = print,
    captioning: Run | None = None,
) -> None:
    """Serves the demonstration page of a run until it is interrupted.

    Args:
        run: the run: one that is searched with, or one that writes captions.
        dataset: the dataset searched, or whose images are captioned.
        split: its split, or `all`.
        port: on 127.0.0.1; 0 takes any that is free.
        open_browser: whether the page is opened in a browser.
        report: called with a line worth showing: an index being built, the address.
        captioning: of a run that is searched with: another that writes captions of the images asked about.

    Raises:
        MissingExtraError: without Gradio.
        InvalidArgumentError: for a port that is in use or none, or a second run that writes captions.
        VsembError: if run and dataset do not fit.
        KeyboardInterrupt: when interrupted, after everything is closed.

    Example:

        serve_demo(Run.open("runs/vsepp"), Dataset.open("data/flickr8k"), port=0)
    """
    with _uploads(), _listening(port) as listener:
        gradio = _import_gradio()
        address = f"http://{HOST}:{listener.getsockname()[1]}/"

        def announce() -> None:
            report(f"The demonstration is at {address} (Ctrl-C ends it).")
            if open_browser:
                # Some browsers hold the caller until they are closed.
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

        with closing(open_tabs(run, dataset, split, report, captioning)) as shown:
            _serve(_application(gradio, build_page(gradio, run, shown)), listener, announce)


@contextmanager
def _uploads() -> Iterator[None]:
    """Keeps what is dropped on the page in a folder that is removed."""
    with tempfile.TemporaryDirectory(prefix="vsemb-demo-", ignore_cleanup_errors=True) as folder:
        os.environ.update(_ENVIRONMENT, GRADIO_TEMP_DIR=folder)
        yield


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    if not 0 <= port <= 65535:
        raise invalid_argument("port", port, "0 to 65535")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        # Else a page that was just closed would keep its port for a minute.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
            listener.listen()
        except OSError as error:
            fix = f"{error.strerror}. Choose another with --port; 0 takes any that is free."
            raise invalid_argument("port", port, f"a free port of {HOST}", fix) from error
        yield listener


def _import_gradio() -> Any:
    with needs_extra("gradio", "demo"):
        import gradio
    if not hasattr(gradio, "mount_gradio_app"):
        raise DataError("The installed Gradio is not complete. Install it again: pip install 'vsemb[demo]'")
    return gradio


def _application(gradio: Any, page: Any) -> Any:
    from fastapi import FastAPI
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    # Those pages of FastAPI would load their scripts from elsewhere.
    no_docs: dict[str, Any] = {"docs_url": None, "redoc_url": None, "openapi_url": None}
    application = FastAPI(**no_docs)
    application = gradio.mount_gradio_app(
        application,
        page,
        path="/",
        server_name=HOST,
        footer_links=[],
        run_history=False,
        enable_monitoring=False,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        show_error=False,
        max_file_size=_MAX_UPLOAD,
        # Fonts that machines have: a named one would be fetched, or be a part of Gradio's own look.
        theme=gradio.themes.Default(
            primary_hue="blue",
            neutral_hue="slate",
            radius_size="md",
            font=("system-ui", "sans-serif"),
            font_mono=("ui-monospace", "monospace"),
        ),
        css_paths=Path(__file__).with_name("page.css"),
        app_kwargs=no_docs,
    )
    # A page elsewhere whose name is made to mean this machine is refused.
    application.add_middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])
    return application


def _serve(application: Any, listener: socket.socket, started: Callable[[], None]) -> None:
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            for route in application.routes:
                # Open pages hold a connection each until Gradio is told that this is the end.
                if (stop := getattr(getattr(route, "app", None), "stop_event", None)) is not None:
                    stop.set()
            await super().shutdown(sockets)

    headers = [("content-security-policy", _POLICY), ("referrer-policy", "no-referrer")]
    config = uvicorn.Config(
        application, log_level="critical", timeout_graceful_shutdown=_GRACE, server_header=False, headers=headers
    )
    if threading.current_thread() is threading.main_thread():
        # The server hands signals on when it has closed; this one would then kill, and leave the uploads.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    Server(config).run(sockets=[listener])
    # Only a signal ends it, and where signals were ignored before, the server's passing it on does nothing.
    raise KeyboardInterrupt
