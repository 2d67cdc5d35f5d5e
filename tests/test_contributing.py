"""The worked placement of CONTRIBUTING.md works as it is printed there."""

import re
import runpy
from pathlib import Path

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"


def test_the_worked_placement_passes_its_own_test_and_trains(tiny, lnexp, tmp_path, monkeypatch):
    section = CONTRIBUTING.read_text().split("## Adding a placement")[1].split("\n## ")[0]
    code, config, test = re.findall(r"```(?:python|yaml)\n(.*?)```", section, re.DOTALL)
    (tmp_path / "placement").mkdir()
    (tmp_path / "placement" / "layer_scale.yaml").write_text(config)
    (tmp_path / "layer_scale.py").write_text(code)
    (tmp_path / "test_layer_scale.py").write_text(test)
    monkeypatch.syspath_prepend(tmp_path)

    tests = runpy.run_path(str(tmp_path / "test_layer_scale.py"))
    tests["test_layer_scale_scales_the_output_of_a_branch"]()
    done = lnexp(
        "train", "--config-dir", tmp_path, *tiny, "placement=layer_scale", "train.updates=2",
        check=0,
    )  # fmt: skip
    run = Path(done.stdout.splitlines()[-1])
    assert run.parent.name.startswith("layer_scale-")
    refused = lnexp(
        "train", "--config-dir", tmp_path, *tiny, "placement=layer_scale",
        "placement.branch_scale=0", check=2,
    )  # fmt: skip
    assert "placement.branch_scale=0 must be above 0; try 0.1" in refused.stderr
