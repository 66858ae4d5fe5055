"""The demo's load: its manifest carries what the run asks for, and is otherwise as it was written."""

import yaml

from localcluster.demo import demo_cluster
from localcluster.demo.demo_cluster import Load

TEXT = """
kind: ConfigMap
metadata: {name: demo-load}
---
kind: Pod
metadata: {name: load}
spec:
  containers:
    - {name: load, image: x, args: [--url, "http://elsewhere/"]}
"""


def test_the_pod_gets_the_arguments_of_the_run_and_nothing_else_changes() -> None:
    before = list(yaml.safe_load_all(TEXT))
    after = list(
        yaml.safe_load_all(
            demo_cluster.manifest(TEXT, Load(url="http://here/", think="5-20", retry="none"))
        )
    )
    assert after[0] == before[0]
    arguments = after[1]["spec"]["containers"][0].pop("args")
    before[1]["spec"]["containers"][0].pop("args")
    assert after[1] == before[1]
    expected = (
        "--url",
        "http://here/",
        "--rate",
        "40.0",
        "--think",
        "5-20",
        "--think-every",
        "2.0",
    )
    expected += ("--retry", "none", "--seconds", "600.0")
    assert arguments == list(expected)
