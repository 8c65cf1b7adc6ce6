"""The cluster files: valid for the tools that read them, and true to the repository."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parent.parent
KUBERAY = sorted((ROOT / "deploy/kuberay").glob("*.yaml"))
CRON = re.compile(r"[\d*/,-]+( [\d*/,-]+){4}")
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


def test_the_nightly_rayjob_is_the_rayjob_with_the_watchlist() -> None:
    files = [ROOT / "deploy/kuberay" / name for name in ("raycronjob.yaml", "rayjob.yaml")]
    cron, job = (yaml.safe_load(path.read_text()) for path in files)
    assert (cron["apiVersion"], cron["kind"]) == ("ray.io/v1", "RayCronJob")
    assert set(cron["spec"]) == {"schedule", "jobTemplate"}
    assert CRON.fullmatch(cron["spec"]["schedule"])
    nightly, once = cron["spec"]["jobTemplate"], job["spec"]
    words = shlex.split(nightly["entrypoint"])
    assert all((ROOT / word).is_file() for word in words[1:3])
    # Tried again, a regression would be nothing new.
    assert nightly["backoffLimit"] == 0
    own = ("entrypoint", "backoffLimit")
    assert {k: v for k, v in nightly.items() if k not in own} == {
        k: v for k, v in once.items() if k not in own
    }


def test_the_other_schedules_run_what_there_is() -> None:
    script = ROOT / "deploy/cron/rebenchmark.sh"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
    workflow = yaml.safe_load((ROOT / "deploy/github/rebenchmark.yml").read_text())
    when = workflow[True]["schedule"]  # YAML reads the key `on` so
    assert CRON.fullmatch(when[0]["cron"])
    steps = workflow["jobs"]["rebenchmark"]["steps"]
    assert all({"uses", "run"} & step.keys() for step in steps)
    cronjob = yaml.safe_load((ROOT / "deploy/kuberay/cronjob.yaml").read_text())
    assert CRON.fullmatch(cronjob["spec"]["schedule"])
    for text in (script.read_text(), steps[-1]["run"]):
        for file in re.findall(r"\b(?:jobs|configs)/[\w./-]+", text):
            assert (ROOT / file).is_file(), file


def test_the_image_copies_what_there_is() -> None:
    for line in (ROOT / "deploy/Dockerfile").read_text().splitlines():
        if line.startswith("COPY"):
            *sources, _ = line.split()[1:]
            assert all((ROOT / source).exists() for source in sources)
