"""HTTP server of the demonstration page.

Gradio's version check, analytics and public link are switched off. A content security policy forbids requests to other
hosts.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from vsemb.demo.page import build_page, open_tabs
from vsemb.demo.pictures import Opener
from vsemb.demo.thumbnails import Thumbnails
from vsemb.errors import DataError, invalid_argument, needs_extra, reason_of
from vsemb.runs.run import Run
from vsemb.serving.access import OPEN, Access

HOST = "127.0.0.1"
_ENVIRONMENT = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
}
# Gradio needs inline scripts and eval.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
    "worker-src 'self' blob:; frame-ancestors 'none'; form-action 'self'; base-uri 'self'; object-src 'none'"
)
# Bytes of one upload, and of all.
_MAX_UPLOAD, _MAX_UPLOADS = 32 << 20, 512 << 20
# Bytes of the body of another request; it names uploaded files.
_MAX_BODY = 1 << 20
# Names and boundaries of a form.
_FORM = 1 << 16
_GRACE = 2


def serve_page(
    run: Run,
    opener: Opener,
    *,
    host: str = HOST,
    port: int = 7860,
    open_browser: bool = False,
    report: Callable[[str], None] = print,
    captioning: Run | None = None,
    access: Access = OPEN,
) -> NoReturn:
    """Serve the demonstration page of a run until interrupted.

    The model is run once before the address is reported.

    Args:
        run: a retrieval run or a captioning run.
        opener: opens the pictures to search or to caption, see `vsemb.demo.pictures`.
        host: address to listen on.
        port: port; 0 for any free port.
        open_browser: whether to open the page in a browser.
        report: function to call with messages, such as the address.
        captioning: captioning run for query images of a retrieval run; None for none.
        access: token, which browsers ask for as a password, and TLS.

    Raises:
        MissingExtraError: without Gradio.
        InvalidArgumentError: for an invalid port or one in use, an address other than loopback without a token, or a
            second captioning run.
        VsembError: if run and pictures do not match.
        KeyboardInterrupt: when interrupted, after everything is closed.

    Example:

        serve_page(*open_source("runs/vsepp", images=["photos"]), port=0)
    """
    access.require_for(host)
    with _uploads(), _listening(host, port) as listener:
        gradio = _import_gradio()
        named = f"[{host}]" if ":" in host else host
        address = f"{'https' if access.encrypted else 'http'}://{named}:{listener.getsockname()[1]}/"

        def announce() -> None:
            report(f"The demonstration is at {address} (Ctrl-C ends it).")
            if open_browser:
                # Some browsers block the caller until they are closed.
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

        with closing(open_tabs(run, opener, report, captioning)) as shown:
            shown.warm_up()
            thumbnails = Thumbnails(shown.pictures)
            application = _application(gradio, build_page(gradio, run, shown), thumbnails, host, access)
            _serve(application, listener, announce, access)
    # Only a signal ends the server. If signals were ignored before, raising it again has no effect, so raise here.
    raise KeyboardInterrupt


@contextmanager
def _uploads() -> Iterator[None]:
    """Keep dropped files in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="vsemb-demo-", ignore_cleanup_errors=True) as folder:
        os.environ.update(_ENVIRONMENT, GRADIO_TEMP_DIR=folder)
        yield


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    if not 0 <= port <= 65535:
        raise invalid_argument("port", port, "0 to 65535")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as listener:
        # Without this option, the port of a closed page stays in use for a minute.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen()
        except OSError as error:
            fix = f"{reason_of(error)}. Choose another `port`; 0 takes any free port."
            raise invalid_argument("port", port, f"a free port of {host}", fix) from error
        yield listener


def _import_gradio() -> Any:
    with needs_extra("gradio", "demo"):
        import gradio
    if not hasattr(gradio, "mount_gradio_app"):
        raise DataError("The installation of Gradio is incomplete. Install it again: pip install 'vsemb[demo]'")
    return gradio


class Guard:
    """ASGI middleware that rejects requests of other pages, requests without the token, and bodies above the limits.

    Args:
        application: the ASGI application.
        access: token of the server.
        host: address that the server listens on.
        uploads: the folder of uploaded files; None if nothing is kept.
        most: maximum bytes of all uploads. The oldest files make room for new ones.
    """

    def __init__(
        self, application: Any, access: Access, host: str = HOST, uploads: Path | None = None, most: int = _MAX_UPLOADS
    ) -> None:
        self._application = application
        self._access, self._host = access, host
        self._uploads, self._most = uploads, most
        self._arriving = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope.get("headers", ())}
        if not self._access.accepts_host(headers.get("host", ""), self._host):
            await _refused(403, "The page is at localhost; this name is another.")(scope, receive, send)
        elif not self._access.allows(headers.get("authorization", "")):
            ask = {"WWW-Authenticate": 'Basic realm="vsemb demo: the password is the token"'}
            await _refused(401, "The token is required as password.", ask)(scope, receive, send)
        elif scope.get("method", "") not in ("GET", "HEAD") and not _same_origin(headers):
            await _refused(403, "Pages of other origins may not send requests.")(scope, receive, send)
        else:
            await self._limited(headers, scope, receive, send)

    async def _limited(self, headers: Mapping[str, str], scope: Any, receive: Any, send: Any) -> None:
        folder = self._uploads if scope.get("path", "").endswith("/upload") else None
        # Only an upload, or a body in chunks, needs a length.
        announced = headers.get("content-length", "" if folder or "transfer-encoding" in headers else "0")
        if not announced.isdecimal() or len(announced) > 15:
            await _refused(411, "A request must announce the length of its body.")(scope, receive, send)
            return
        size = int(announced)
        if size > (_MAX_BODY if folder is None else _MAX_UPLOAD + _FORM) or self._arriving + size > self._most:
            await _refused(413, "The request is too large. Try again later, or drop a smaller image.")(
                scope, receive, send
            )
            return
        self._arriving += size
        try:
            if folder is not None:
                _make_room(folder, self._most - self._arriving)
            await self._application(scope, receive, send)
        finally:
            self._arriving -= size


def _refused(status: int, reason: str, headers: dict[str, str] | None = None) -> Any:
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(reason, status, headers)


def _same_origin(headers: Mapping[str, str]) -> bool:
    """Return whether a request comes from this page, or from a program that is not a browser.

    Browsers send `Sec-Fetch-Site` to encrypted and local servers, and `Origin` to all.
    """
    if (site := headers.get("sec-fetch-site")) is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    # A proxy may change Host. A page of another origin cannot set X-Forwarded-Host without asking.
    own = {headers.get("host"), headers.get("x-forwarded-host")}
    return origin is None or origin.partition("://")[2] in own


def _make_room(folder: Path, most: int) -> None:
    """Remove the oldest files of a folder until the others have at most `most` bytes."""
    files = []
    for path in folder.rglob("*"):
        # Another request may have removed it.
        with suppress(OSError):
            status = path.stat()
            if not path.is_dir():
                files.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= most:
            return
        with suppress(OSError):
            path.unlink()
        total -= size


def _application(gradio: Any, page: Any, thumbnails: Thumbnails, host: str, access: Access) -> Any:
    from fastapi import FastAPI

    # FastAPI's documentation pages load scripts from other hosts.
    no_docs: dict[str, Any] = {"docs_url": None, "redoc_url": None, "openapi_url": None}
    application = FastAPI(**no_docs)
    # Before Gradio's page, which takes all other addresses.
    thumbnails.add_to(application)
    application = gradio.mount_gradio_app(
        application,
        page,
        path="/",
        server_name=host,
        footer_links=[],
        run_history=False,
        enable_monitoring=False,
        ssr_mode=False,
        pwa=False,
        mcp_server=False,
        show_error=False,
        max_file_size=_MAX_UPLOAD,
        theme=_theme(gradio),
        css_paths=Path(__file__).with_name("page.css"),
        app_kwargs=no_docs,
    )
    application.add_middleware(Guard, access=access, host=host, uploads=Path(os.environ["GRADIO_TEMP_DIR"]))
    return application


def _theme(gradio: Any) -> Any:
    # Use system fonts, since the page would download other fonts.
    fonts: dict[str, Any] = {"font": ("system-ui", "sans-serif"), "font_mono": ("ui-monospace", "monospace")}
    theme = gradio.themes.Default(primary_hue="blue", neutral_hue="slate", radius_size="md", **fonts)
    # Gradio's own greys and blues have a contrast below 4.5 (WCAG AA) on white, and its borders one below 3.
    return theme.set(
        body_text_color_subdued="*neutral_600",
        block_info_text_color="*neutral_600",
        input_placeholder_color="*neutral_500",
        input_placeholder_color_dark="*neutral_400",
        input_border_color="*neutral_500",
        input_border_color_dark="*neutral_400",
        checkbox_border_color="*neutral_500",
        checkbox_border_color_dark="*neutral_400",
        link_text_color="*primary_700",
        link_text_color_dark="*primary_300",
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_hover="*primary_800",
        button_primary_background_fill_dark="*primary_700",
    )


def _serve(application: Any, listener: socket.socket, started: Callable[[], None], access: Access) -> None:
    import uvicorn

    main_thread = threading.current_thread() is threading.main_thread()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            # Uvicorn ends at SIGINT and SIGTERM alone. A program that ignores SIGHUP, as under nohup, goes on.
            if main_thread and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._end)
            started()

        def _end(self) -> None:
            self.should_exit = True

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            for route in application.routes:
                # Set Gradio's stop event, or open pages keep their connections.
                if (stop := getattr(getattr(route, "app", None), "stop_event", None)) is not None:
                    stop.set()
            await super().shutdown(sockets)

    headers = [
        ("content-security-policy", _POLICY),
        ("referrer-policy", "no-referrer"),
        # No page of another origin shows pictures of this one.
        ("cross-origin-resource-policy", "same-origin"),
    ]
    config = uvicorn.Config(
        application,
        log_level="critical",
        timeout_graceful_shutdown=_GRACE,
        server_header=False,
        headers=headers,
        ssl_certfile=access.tls_cert,
        ssl_keyfile=access.tls_key,
    )
    if main_thread:
        # The server raises a received signal again after shutdown. SIGTERM would then kill the process before uploads
        # are deleted.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    Server(config).run(sockets=[listener])
