"""Writes kuberay.json anew: what KubeRay would send to Ray for each text of `support.kuberay.yaml_texts`.

    PYTHONPATH=tests .venv/bin/python tests/golden/serve_config/dump.py

Needs Go, and the Go module proxy once. `kuberay_yaml` decodes as KubeRay's `updateServeDeployment` does, with the libraries of its
go.mod: k8s.io/apimachinery, and through it sigs.k8s.io/yaml and go.yaml.in/yaml/v2.
"""

import json
import subprocess
from pathlib import Path
from typing import Final

from support.kuberay.yaml_texts import TEXTS

HERE: Final = Path(__file__).parent


def main() -> None:
    """Run the tool and keep its output beside each text."""
    output = subprocess.run(
        ["go", "run", "."],
        cwd=HERE / "kuberay_yaml",
        input=json.dumps(TEXTS).encode(),
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    cases = [
        {"yaml": text, **answer} for text, answer in zip(TEXTS, json.loads(output), strict=True)
    ]
    lines = ",\n".join(json.dumps(case, ensure_ascii=True) for case in cases)
    (HERE / "kuberay.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
