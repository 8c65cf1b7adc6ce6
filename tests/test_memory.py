"""Memory of the calibrators on a table that does not fit their budget."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys, threading, time, warnings
import numpy as np
from pathlib import Path
import ace_ray

def anonymous():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024

logits = np.load(sys.argv[1], mmap_mode="r")
labels = np.load(sys.argv[2])
peaks = {}
for name in ("TemperatureScaling", "Spline", "VectorScaling"):
    base, peak, done = anonymous(), [0], threading.Event()
    def watch():
        while not done.is_set():
            peak[0] = max(peak[0], anonymous() - base)
            time.sleep(0.002)
    thread = threading.Thread(target=watch)
    thread.start()
    fitted = getattr(ace_ray, name)().fit(logits, labels)
    assert fitted.report_.converged
    confidence = fitted.predict_confidence(logits)
    out = np.lib.format.open_memmap(sys.argv[3], "w+", np.float32, logits.shape)
    fitted.predict_proba(logits, out=out)
    assert abs(float(out[-1].sum()) - 1) < 1e-4
    del out
    done.set()
    thread.join()
    peaks[name] = peak[0]
print(json.dumps(peaks))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's /proc")
def test_half_a_million_rows_stay_under_a_gigabyte(tmp_path: Path) -> None:
    """500,000 x 1,000 float32 from disk: fit and predict in less than 1 GB of own memory."""
    code = (
        "import sys, numpy as np\n"
        "n, c = 500_000, 1_000\n"
        "z = np.lib.format.open_memmap(sys.argv[1], 'w+', np.float32, (n, c))\n"
        "rng = np.random.default_rng(0); y = rng.integers(0, c, n)\n"
        "for a in range(0, n, 10_000):\n"
        "    rows = 2 * rng.standard_normal((10_000, c), np.float32)\n"
        "    rows[np.arange(10_000), y[a : a + 10_000]] += rng.normal(8, 3, 10_000)\n"
        "    z[a : a + 10_000] = rows\n"
        "np.save(sys.argv[2], y)\n"
    )
    paths = [str(tmp_path / name) for name in ("z.npy", "y.npy", "p.npy")]
    subprocess.run([sys.executable, "-c", code, *paths[:2]], check=True, timeout=300)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *paths],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    peaks = json.loads(done.stdout)
    assert all(peak < 1e9 for peak in peaks.values()), peaks
