"""Which node modules a run imports for its graph."""

import os
import subprocess
import sys

CODE = """
import sys
from codefyui_core.loading import load
from codefyui_core.runner.execute import node_set
kinds = sys.argv[1].split(",")
document = {"nodes": [{"id": k, "type": k, "data": {"params": {}}} for k in kinds], "edges": []}
found = node_set(load(plane=None), document).definitions.nodes
print("torch" in sys.modules, all(kind in found for kind in kinds), "Own" in found)
"""

OWN = """
from codefyui_core.plugin import Node

class Own(Node):
    type, category = "Own", "Test"

    def execute(self, inputs, params, context):
        return {}
"""


def load(kinds, environ):
    done = subprocess.run(
        [sys.executable, "-c", CODE, kinds], capture_output=True, text=True, check=False, env=environ
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_graph_of_the_cores_nodes_imports_no_pack_and_no_own_file(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    environ = {**os.environ, "CODEFYUI_CUSTOM_NODES_DIR": str(tmp_path)}
    assert load("Start,Print", environ) == ["False", "True", "False"]
    assert load("Start,Own", environ)[1:] == ["True", "True"]
