"""What only a terminal gets: colours and progress. In a pipe or a file there is the plain text."""

from __future__ import annotations

import os
from typing import Literal, TextIO

STYLES = {"bold": "1", "red": "31", "green": "32", "dim": "2"}


def is_terminal(stream: TextIO) -> bool:
    """Whether somebody looks at the stream, so that progress may be shown."""
    return not stream.closed and stream.isatty()


def has_colours(stream: TextIO) -> bool:
    """Whether the stream is a terminal with colours, and nobody asked for none (https://no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: Literal["bold", "red", "green", "dim"], stream: TextIO) -> str:
    """The text for this stream: with a style if it has colours."""
    return f"\033[{STYLES[style]}m{text}\033[0m" if has_colours(stream) else text
