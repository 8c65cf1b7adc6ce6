"""The cluster files: valid for the tools that read them, and true to the repository."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parent.parent
KUBERAY = sorted((ROOT / "deploy/kuberay").glob("*.yaml"))
QUANTITY = re.compile(r"\d+(\.\d+)?(m|Ki|Mi|Gi|Ti)?")


def test_cluster_yaml_is_valid_for_ray() -> None:
    config = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    validate_config(prepare_config(config))
    head, gpu = (config["available_node_types"][name] for name in ("head", "gpu"))
    assert head["resources"] == {"CPU": 0}
    assert "InstanceMarketOptions" not in head["node_config"]
    assert (gpu["min_workers"], gpu["resources"]["GPU"]) == (0, 1)
    assert gpu["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert any("shm-size" in option for option in config["docker"]["run_options"])


def pods(document: dict[str, Any]) -> list[dict[str, Any]]:
    """All pod templates of a manifest."""
    found = []
    if isinstance(document, dict):
        if "containers" in document:
            found.append(document)
        for value in document.values():
            found += pods(value)
    elif isinstance(document, list):
        for value in document:
            found += pods(value)
    return found


@pytest.mark.parametrize("path", KUBERAY, ids=lambda p: p.name)
def test_manifests(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    assert {"apiVersion", "kind", "metadata", "spec"} <= document.keys()
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", document["metadata"]["name"])
    assert pods(document)
    for pod in pods(document):
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        for container in pod["containers"]:
            assert {"name", "image"} <= container.keys()
            assert {m["name"] for m in container.get("volumeMounts", [])} <= volumes
            for part in ("requests", "limits"):
                for value in container.get("resources", {}).get(part, {}).values():
                    assert isinstance(value, str)
                    assert QUANTITY.fullmatch(value), value


def test_the_rayjob_runs_what_there_is() -> None:
    job = yaml.safe_load((ROOT / "deploy/kuberay/rayjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    words = shlex.split(job["spec"]["entrypoint"])
    assert words[0] == "python"
    assert (ROOT / words[1]).is_file()
    cluster = job["spec"]["rayClusterSpec"]
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    assert f"ray=={cluster['rayVersion']}" in pins
    (group,) = cluster["workerGroupSpecs"]
    assert group["minReplicas"] == 0 < group["maxReplicas"]
    (worker,) = group["template"]["spec"]["containers"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_the_image_copies_what_there_is() -> None:
    for line in (ROOT / "deploy/Dockerfile").read_text().splitlines():
        if line.startswith("COPY"):
            *sources, _ = line.split()[1:]
            assert all((ROOT / source).exists() for source in sources)
