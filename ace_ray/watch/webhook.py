"""Tell somebody: one POST of the result. The URL is never stored, printed or handed on."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from ace_ray.progress import say

VARIABLE: Final = "ACE_RAY_WEBHOOK"
_SECONDS: Final = 10.0
Delivery: TypeAlias = Literal["sent", "failed"] | None


class _Stay(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as an empty GET, perhaps elsewhere: it is a failure."""

    def redirect_request(self, *_: Any) -> None:
        """Follow nothing."""


def take_url() -> str | None:
    """Return the URL and remove it from the environment: no process of Ray inherits it."""
    url = os.environ.pop(VARIABLE, None) or None
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        usable = False
    if not usable:
        say(f"warning: {VARIABLE} is not an http(s) URL; nothing will be sent")
    return url if usable else None


def send(url: str, found: Mapping[str, Any]) -> Delivery:
    """POST the result as JSON; a failure is a line without the URL, never an exception."""
    data = json.dumps(found, allow_nan=False).encode()
    opener = urllib.request.build_opener(_Stay)
    try:
        request = urllib.request.Request(  # noqa: S310 - http(s) only, by `take_url`
            url, data, {"Content-Type": "application/json"}
        )
        with opener.open(request, timeout=_SECONDS):
            return "sent"
    except urllib.error.HTTPError as error:
        reason = f"it answered {error.code}"
        error.close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        # Of these only the kind: their texts may repeat the address.
        cause = getattr(error, "reason", error)
        reason = type(cause).__name__
    say(f"warning: the webhook could not be reached ({reason}); the result stands as printed")
    return "failed"
