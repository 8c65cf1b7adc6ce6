"""From a store's URI to a filesystem. Credentials and endpoints come from the environment alone."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import parse_qsl, urlsplit

from pyarrow import ArrowException
from pyarrow import fs as pafs

from ace_ray.errors import StoreError

T = TypeVar("T")
OBJECT_STORES: Final = frozenset({"s3", "gcs", "abfs"})
_OPTIONS: Final = frozenset({"region"})  # of a URI; anything else could be a secret
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_PAUSES: Final = (0.2, 0.4, 0.8, 1.6)  # seconds before each further attempt
_PASSING: Final = frozenset(
    {errno.EAGAIN, errno.ECONNRESET, errno.ECONNREFUSED, errno.ESTALE, errno.ETIMEDOUT}
)
# What servers and SDKs say of a failure that may be over soon.
_PASSING_WORDS: Final = re.compile(
    r"SLOW_DOWN|THROTTLING|REQUEST_TIMEOUT|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|NETWORK_CONNECTION"
    r"|HTTP status (?:429|5\d\d)|\b(?:429|5\d\d) (?:Too Many|Internal|Bad Gateway|Service|Gateway)",
    re.IGNORECASE,
)


def open_filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the filesystem of a URI or an absolute local path, and the path within it.

    Raises:
        StoreError: If the URI holds what may be a secret, or names no known filesystem.
    """
    if "://" not in uri:
        return pafs.LocalFileSystem(), uri
    place = _without_secrets(uri)
    try:
        endpoint = next((os.environ[n] for n in _ENDPOINTS if os.environ.get(n)), None)
        if place.startswith("s3://") and endpoint:
            return _s3_at(endpoint, uri), place.removeprefix("s3://")
        filesystem, root = pafs.FileSystem.from_uri(uri)
    except (ValueError, ArrowException) as error:
        raise StoreError(
            f"cannot open store {place}: {str(error).splitlines()[0]}; "
            "use a local path, s3://bucket/prefix, gs:// or abfs://"
        ) from error
    return filesystem, root


def _without_secrets(uri: str) -> str:
    """Return a URI's scheme, place and path; one that holds more than that is refused unshown."""
    parts = urlsplit(uri)
    user, _, host = parts.netloc.rpartition("@")
    # abfs://container@account.dfs.core.windows.net: the name before the @ is no secret.
    named = parts.scheme in {"abfs", "abfss"} and ":" not in user
    place = f"{parts.scheme}://{parts.netloc if named else host}{parts.path}"
    options = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    if (user and not named) or not options <= _OPTIONS or parts.fragment:
        raise StoreError(
            f"store {place}: its URI holds a user, password or option; leave them out, "
            "credentials and endpoint are taken from the environment (docs/storage.md)"
        )
    return place


def _s3_at(endpoint: str, uri: str) -> pafs.FileSystem:
    """Return S3 at another endpoint than AWS."""
    server = urlsplit(endpoint)
    if server.scheme not in {"http", "https"} or not server.netloc or "@" in server.netloc:
        raise StoreError(
            f"{' or '.join(_ENDPOINTS)}: expected http://host:port or https://host[:port]"
        )
    region = dict(parse_qsl(urlsplit(uri).query)).get("region")
    known = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return pafs.S3FileSystem(
        endpoint_override=server.netloc + server.path.rstrip("/"),
        scheme=server.scheme,
        region=known or "us-east-1",
        allow_delayed_open=True,
    )


def absolute(uri: str) -> str:
    """Return a local path as an absolute one: workers have another working directory."""
    return uri if "://" in uri else str(Path(uri).expanduser().absolute())


def may_pass(error: BaseException) -> bool:
    """Return whether an error may be over soon; a full or read-only disk is not such a one."""
    number = getattr(error, "errno", None)
    return number in _PASSING or bool(_PASSING_WORDS.search(str(error)))


def persistent(operation: Callable[[], T]) -> T:
    """Call a repeatable operation; try again, a few times, after an error that may pass."""
    for pause in _PAUSES:
        try:
            return operation()
        except (OSError, ArrowException) as error:
            if not may_pass(error):
                raise
        time.sleep(pause)
    return operation()
