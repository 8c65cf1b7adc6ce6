"""How the command line speaks of problems: one line with the remedy, and an exit code."""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import click

from ace_ray.errors import AceRayError
from ace_ray.progress import say
from ace_ray.stopping import cause, heed_terminate, time_limit

P = ParamSpec("P")
R = TypeVar("R")


class OneLineGroup(click.Group):
    """A click group whose errors are one line, and which says how to go on after an interrupt."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command; exit code 2: usage error, 130: interrupted, 143: terminated."""
        # Tables have marks that a narrow encoding lacks; better a "?" than no table.
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        kwargs["standalone_mode"] = False
        heed_terminate()
        try:
            return super().main(*args, **kwargs)
        except click.ClickException as error:
            context = getattr(error, "ctx", None)
            command = context.command_path if context else "ace-ray"
            message = error.format_message().rstrip(".").replace("\n", " ")
            say(f"error: {message}; see `{command} --help`")
            sys.exit(2)
        except (click.Abort, KeyboardInterrupt):
            sys.exit(_stopped(None))


def reports_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Turn the package's errors into one line and an exit code, and heed `--max-hours`."""

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        hours = kwargs.pop("max_hours", None)
        try:
            with time_limit(cast("float | None", hours)):
                return function(*args, **kwargs)
        except KeyboardInterrupt:
            sys.exit(_stopped(hours))
        except AceRayError as error:
            say(f"error: {with_arguments(str(error), kwargs)}")
            sys.exit(error.exit_code)
        except BrokenPipeError:
            raise
        except OSError as error:
            say(f"error: {error.strerror or error}")
            sys.exit(2)

    return wrapper


def _stopped(hours: object) -> int:
    """Say why a command was stopped and what remains; return its exit code."""
    kept = "what is finished is kept, the same command goes on from there"
    if cause() == "terminate":
        say(f"terminated; {kept}")
        return 143
    if cause() == "time":
        plan = getattr(click.get_current_context(silent=True), "obj", None)
        left = f"{plan.left()} left" if plan else "nothing was started"
        say(f"error: --max-hours {hours:g} is over, {left}; {kept}")
        return 1
    say(f"stopped; {kept}")
    return 130


def with_arguments(message: str, arguments: Mapping[str, Any]) -> str:
    """Complete the commands that a remedy names, so that they can be pasted."""
    words = []
    if arguments.get("config"):
        words.append(shlex.quote(arguments["config"]))
    if arguments.get("store"):
        words.append(f"--store {shlex.quote(arguments['store'])}")
    tail = "".join(f" {word}" for word in words)
    return re.sub(r"`(ace-ray (?:logits|run|sweep))( --repair)?`", rf"`\1{tail}\2`", message)
