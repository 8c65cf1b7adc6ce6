"""Memory of a long extraction: all its processes together, from the first part to the last."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.conftest import command

CONFIG = """
benchmarks: [{name: glyphs, calibration: 1000, test: 12500, corrupted: 12500, severities: [3]}]
"""
IMAGES = 1000 + 12_500 * 17
GB = 1e9


def megabytes(tree: psutil.Process) -> float:
    """The memory of a process and all below it, shared pages counted once (PSS)."""
    total = 0
    for process in [tree, *tree.children(recursive=True)]:
        with contextlib.suppress(psutil.Error, OSError, StopIteration):
            text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            total += int(next(x for x in text.splitlines() if x.startswith("Pss:")).split()[1])
    return total / 1000


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="reads Linux's /proc")
def test_two_hundred_thousand_rows_in_flat_memory(tmp_path: Path) -> None:
    config, store = tmp_path / "run.yaml", tmp_path / "store"
    config.write_text(CONFIG)
    levels: list[tuple[int, float]] = []  # parts done, megabytes
    with subprocess.Popen(
        command("logits", config, "--store", store), stderr=subprocess.PIPE, text=True
    ) as driver:
        tree = psutil.Process(driver.pid)
        while driver.poll() is None:
            parts = len(list(store.rglob("part-*.parquet")))
            levels.append((parts, megabytes(tree)))
            time.sleep(0.5)
        assert driver.returncode == 0, driver.stderr.read() if driver.stderr else ""
    most = levels[-1][0]
    assert most >= IMAGES // 2000
    working = np.array([mb for parts, mb in levels if 0 < parts < most])
    assert len(working) > 20, "too short to tell"
    quarters = [float(np.median(q)) for q in np.array_split(working, 4)]
    before = max(mb for parts, mb in levels if parts == 0)
    print(
        f"\n{IMAGES:,} rows: {before:,.0f} MB when the first part was there, at most "
        f"{working.max():,.0f} MB; medians of the quarters {[round(q) for q in quarters]}"
    )
    # Flat: what the last quarter has more than the second is not a leak per row.
    assert quarters[3] <= quarters[1] * 1.1
    assert (working.max() - before) * 1e6 <= 3 * GB
