"""The whole pipeline on a real S3 endpoint: the bytes of a local run, also after a kill."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ace_ray.errors import StoreError
from ace_ray.store import MARKER, Store
from tests.conftest import SMALL, Done, ace_ray, command
from tests.objects import BUCKET, failing_proxy, s3_server

KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "hunter2-of-the-test"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as url, pytest.MonkeyPatch.context() as patch:
        for name, value in {**KEYS, "AWS_EC2_METADATA_DISABLED": "true"}.items():
            patch.setenv(name, value)
        patch.setenv("AWS_ENDPOINT_URL", url)
        yield url


def outputs(store: Store) -> dict[str, bytes]:
    """Results, tables, records and logit tables, by path."""
    (run_id,) = store.names("runs")
    found = {"results.parquet": store.read(f"runs/{run_id}/results.parquet")}
    for folder in (f"runs/{run_id}/tables", f"runs/{run_id}/trials", *split_folders(store)):
        for name in store.names(folder):
            if not name.startswith("_"):
                found[f"{folder}/{name}"] = store.read(f"{folder}/{name}")
    return found


def split_folders(store: Store) -> list[str]:
    found = ["logits"]
    for _ in range(3):
        found = [f"{folder}/{name}" for folder in found for name in store.names(folder)]
    return found


def committed(store: Store) -> list[str]:
    return [f for f in split_folders(store) if store.has(f"{f}/{MARKER}")]


def valid(uri: str) -> Done:
    return ace_ray("validate", "--store", uri)


@pytest.fixture(scope="module")
def on_s3(endpoint: str) -> str:
    """The store of a finished run of `configs/glyphs-small.yaml`."""
    uri = f"s3://{BUCKET}/small"
    done = ace_ray("run", SMALL, "--store", uri, "--json")
    assert done.code == 0, done.stderr
    assert done.json["results"].startswith(f"{uri}/runs/")
    return uri


def test_a_run_on_s3_gives_the_bytes_of_a_local_one(on_s3: str, small_run: dict[str, Any]) -> None:
    store = Store.open(on_s3)
    mine, local = outputs(store), outputs(Store.open(str(small_run["store"])))
    assert len(mine) > 20
    assert mine == local
    assert store.names("staging") == []
    again = ace_ray("run", SMALL, "--store", on_s3, "--json")
    assert (again.json["splits_extracted"], again.json["trials_run"]) == (0, 0)


def test_the_other_commands_on_s3(on_s3: str, tmp_path: Path) -> None:
    assert valid(on_s3).code == 0
    (run_id,) = Store.open(on_s3).names("runs")
    assert ace_ray("ls", "runs", "--store", on_s3).stdout.startswith(f"{run_id}  complete")
    before = outputs(Store.open(on_s3))
    assert ace_ray("report", "--store", on_s3).code == 0
    assert outputs(Store.open(on_s3)) == before
    assert ace_ray("compare", run_id, run_id, "--store", on_s3).code == 0
    file = tmp_path / "mine.npz"
    rng = np.random.default_rng(0)
    np.savez(file, logits=rng.normal(size=(50, 4)), labels=rng.integers(0, 4, 50))
    names = ("--model", "mine", "--benchmark", "shop", "--split", "fog/1", "--role", "ood")
    other = f"s3://{BUCKET}/imported"
    done = ace_ray("import", file, *names, "--store", other, "--json")
    assert done.code == 0, done.stderr
    assert done.json["rows"] == 50
    assert len(committed(Store.open(other))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["logits", "sweep"])
def test_a_driver_killed_on_s3_leaves_no_duplicate(
    endpoint: str, small_run: dict[str, Any], stage: str
) -> None:
    uri = f"s3://{BUCKET}/killed-{stage}"
    store = Store.open(uri)

    def begun() -> int:
        if stage == "logits":
            return len(committed(store))
        return sum(len(store.names(f"runs/{r}/trials")) for r in store.names("runs"))

    with subprocess.Popen(
        command("run", SMALL, "--store", uri), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as driver:
        deadline = time.monotonic() + 200
        while not begun():
            assert driver.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
        driver.kill()
        assert driver.wait() == -9
    assert valid(uri).code == 2  # no run yet, or one that is not complete
    done = ace_ray("run", SMALL, "--store", uri, "--json")
    assert done.code == 0, done.stderr
    assert outputs(store) == outputs(Store.open(str(small_run["store"])))
    assert valid(uri).code == 0


@pytest.mark.slow
def test_the_whole_demo_on_s3(endpoint: str, tmp_path: Path) -> None:
    uri, local = f"s3://{BUCKET}/demo", tmp_path / "store"
    for store in (uri, local):
        done = ace_ray("demo", "--store", store)
        assert done.code == 0, done.stderr
    mine = outputs(Store.open(uri))
    assert len(mine) > 100
    assert mine == outputs(Store.open(str(local)))


@pytest.mark.slow
def test_a_network_that_fails_every_third_write(
    endpoint: str, small_run: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"s3://{BUCKET}/third"
    with failing_proxy(endpoint, every=3) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        done = ace_ray("run", SMALL, "--store", uri)
        assert proxy.failed > 10
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    assert done.code == 0, done.stderr
    assert valid(uri).code == 0
    assert outputs(Store.open(uri)) == outputs(Store.open(str(small_run["store"])))


def test_a_network_that_fails_every_write_is_one_line(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"s3://{BUCKET}/never"
    with failing_proxy(endpoint, every=1) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        done = ace_ray("run", SMALL, "--store", uri)
        assert proxy.failed > 1
    assert done.code == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"error: cannot write {uri}/ace-store.json")
    assert "Traceback" not in done.stderr
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    assert not Store.open(uri).exists


@pytest.mark.parametrize(
    "uri",
    [
        "s3://key:hunter2@bucket/x",
        "s3://hunter2@bucket/x",
        "s3://bucket/x?secret_key=hunter2",
        "gs://bucket/x?access_token=hunter2",
        "abfs://box:hunter2@account.dfs.core.windows.net/x",
        "abfs://box@account.dfs.core.windows.net/x?sas_token=hunter2",
    ],
)
def test_a_secret_in_a_uri_is_refused_unshown(uri: str) -> None:
    with pytest.raises(StoreError, match="taken from the environment") as caught:
        Store.open(uri)
    assert "hunter2" not in str(caught.value)
