"""`python -m ace_ray` is `ace-ray`."""

from ace_ray.cli import main

main(prog_name="ace-ray")
