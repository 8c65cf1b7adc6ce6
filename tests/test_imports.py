"""The maths stays free of Ray and torch, and importing the package stays cheap."""

import subprocess
import sys
from pathlib import Path

import pytest

import ace_ray.calibration


@pytest.mark.parametrize("module", ["ace_ray", "ace_ray.calibration", "ace_ray.cli"])
def test_import_loads_neither_ray_nor_torch(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'ray', 'torch'}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_calibration_module_imports_ray_or_torch() -> None:
    folder = Path(ace_ray.calibration.__file__).parent
    modules = [f"ace_ray.calibration.{p.stem}" for p in folder.glob("[!_]*.py")]
    assert len(modules) > 4
    code = (
        f"import sys, {', '.join(modules)}; print(sorted({{'ray', 'torch'}} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    for path in folder.glob("*.py"):
        source = path.read_text()
        assert "import ray" not in source
        assert "import torch" not in source
