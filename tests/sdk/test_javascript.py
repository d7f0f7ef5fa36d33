"""OpenAI's SDK for JavaScript: its calls are a script of their own, whose exchanges are checked as
all others are."""

import pathlib
import subprocess


def test_calls_from_javascript(request, served, recorder, tmp_path):
    modules = pathlib.Path(request.config.getoption("--node-modules"))
    script = tmp_path / "openai_calls.mjs"  # packages are looked for beside a script
    script.write_text(pathlib.Path(__file__).with_name("openai_calls.mjs").read_text("utf-8"))
    (tmp_path / "node_modules").symlink_to(modules)
    exchanges = tmp_path / "exchanges.jsonl"
    ended = subprocess.run(["node", script, served.url, exchanges], capture_output=True,
                           text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    recorder.read(exchanges)
