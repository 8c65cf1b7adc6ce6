"""Can any machine of the cluster do it? Ray itself would wait for one in silence, for ever."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from ace_ray.errors import ConfigError
from ace_ray.progress import say

_WORDS: Final = {"CPU": "CPUs", "GPU": "GPUs", "memory": "bytes of memory"}


def need_node(asked: Mapping[str, tuple[str, float]]) -> None:
    """Check that some node has all that a worker asks for at once; Ray must be running.

    On a cluster an autoscaler may still bring such a node: there it is only said.

    Args:
        asked: By Ray's resource: the key under `resources` that asks for it, and how much.

    Raises:
        ConfigError: On a local Ray that will never have it.
    """
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    wanted = {name: amount for name, (_, amount) in asked.items() if amount}
    if any(all(has.get(name, 0) >= amount for name, amount in wanted.items()) for has in nodes):
        return
    most = {name: max((has.get(name, 0) for has in nodes), default=0) for name in wanted}
    short = [name for name in wanted if most[name] < wanted[name]] or list(wanted)
    reasons = [
        f"resources.{asked[name][0]}: {_shown(wanted[name])} {_WORDS[name]}, "
        f"the largest node has {_shown(most[name])}"
        for name in short
    ]
    if os.environ.get("RAY_ADDRESS"):
        say(f"waiting for a node that is large enough ({'; '.join(reasons)})")
        return
    raise ConfigError(f"{'; '.join(reasons)}; ask for less")


def _shown(amount: float) -> str:
    return f"{amount:,.0f}" if amount == int(amount) else f"{amount:g}"
