"""The address of a port of a broker, as people write it."""

from __future__ import annotations

from urllib.parse import urlsplit

from thatch.errors import CallerError, shown

SCHEMES = ("ws", "wss", "http", "https")
CLIENT_URL, OVERLAY_URL = "ws://127.0.0.1:7878", "ws://127.0.0.1:7879"


def checked_url(url: str, example: str = CLIENT_URL) -> str:
    """The address of a port of a broker, without a slash at its end.

    >>> checked_url("ws://127.0.0.1:7878/")
    'ws://127.0.0.1:7878'
    """
    if not isinstance(url, str):
        raise CallerError(f"the address of a broker is a text such as {example}, not {shown(url)}")
    port = ""
    try:
        parts = urlsplit(url)
        port = parts.netloc.rpartition(":")[2]
        is_usable = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or none that there is
        is_usable = False
    if not is_usable and port.isdigit() and not 0 < int(port[:9]) < 65_536:
        raise CallerError(f"{shown(url)}: {port[:9]} is not a port (1 to 65535)")
    if not is_usable:
        raise CallerError(f"the address of a broker is a URL such as {example}, not {shown(url)}")
    return url.rstrip("/")


def without_path(url: str) -> tuple[str, str]:
    """An address without the path behind its port, and the path.

    >>> without_path("ws://127.0.0.1:7878/events")
    ('ws://127.0.0.1:7878', '/events')
    """
    parts = urlsplit(url)
    base = f"{parts.scheme}://{parts.netloc}"
    return base, url[len(base) :]
