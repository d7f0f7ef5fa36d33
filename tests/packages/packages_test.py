"""What is shipped beside the program is taken by it: example settings, the commands of compose files and of systemd's
units, and the units' sandbox by systemd-analyze. scripts/package_test.sh installs the packages themselves.

packages_test.py --baton FILE --units FOLDER
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROLES = ("serve", "router", "prefill", "decode")
options = None


def output(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)


def unit_command(unit):
    """ExecStart of a unit, as words, with systemd's specifiers filled in."""
    line = re.search(r"^ExecStart=(.*)$", unit.read_text(), re.M).group(1)
    return [word.replace("%H", "host").replace("%i", "0") for word in line.split()]


class Taken(unittest.TestCase):
    def check(self, flags, what):
        """The program reads these flags and the settings they name."""
        run = output(options.baton, "config", *flags)
        self.assertEqual(run.returncode, 0, f"{what}: {run.stderr}")
        return run.stdout

    def test_examples_of_settings(self):
        examples = sorted((ROOT / "configs").glob("**/*.yaml"))
        self.assertGreaterEqual(len(examples), 5)
        for path in examples:
            self.assertIn("/srv/models/llama", self.check([f"--config={path}"], path))

    def test_examples_name_their_own_file(self):
        for path in sorted((ROOT / "configs").glob("**/*.yaml")):
            said = re.search(r"baton (\w+) --config (\S+)", path.read_text())
            self.assertEqual(said.group(2), path.name)
            self.assertIn(said.group(1), ROLES)

    def test_a_wrong_example_would_be_noticed(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as wrong:
            wrong.write("decode:\n  max_batches: 3\n")
            wrong.flush()
            run = output(options.baton, "config", f"--config={wrong.name}")
            self.assertNotEqual(run.returncode, 0)
            self.assertIn("max_batches", run.stderr)

    def test_commands_of_compose_files(self):
        seen = set()
        for path in sorted((ROOT / "deploy/docker").glob("compose*.yaml")):
            document = yaml.safe_load(path.read_text())
            for name, service in document["services"].items():
                command = service["command"]
                self.check(command[1:], f"{path.name}, {name}")
                seen.add(command[0])
                self.assertTrue(service["read_only"] and service["cap_drop"] == ["ALL"])
                # Each file that the command names is there.
                secrets = {f"/run/secrets/{each}" for each in service["secrets"]}
                self.assertLessEqual(set(re.findall(r"/run/secrets/[\w-]+", " ".join(command))), secrets)
                self.assertLessEqual({each.rsplit("/", 1)[1] for each in secrets}, set(document["secrets"]))
        self.assertEqual(seen, set(ROLES))

    def test_image_and_chart_run_as_the_same_user(self):
        user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "deploy/docker/Dockerfile").read_text(), re.M).groups()
        security = yaml.safe_load((ROOT / "deploy/helm/baton/values.yaml").read_text())["security"]
        self.assertEqual(user, (str(security["runAsUser"]), str(security["runAsGroup"])))
        self.assertNotEqual(user[0], "0")


class Units(unittest.TestCase):
    def units(self):
        found = sorted(pathlib.Path(options.units).glob("*.service"))
        self.assertEqual([each.name for each in found], [
            "baton-decode@.service", "baton-prefill@.service", "baton-router.service", "baton.service"])
        return found

    def test_commands_are_taken(self):
        for unit in self.units():
            program, role, *flags = unit_command(unit)
            self.assertEqual((program, role in ROLES), ("/usr/bin/baton", True))
            # The file of settings is the user's, but for that of baton.service.
            at = flags.index("--config")
            settings = ROOT / "deploy/systemd/baton.yaml" if role == "serve" else "/dev/null"
            self.assertEqual(output(options.baton, "config", *flags[:at], "--config", settings,
                                    *flags[at + 2:]).returncode, 0, unit.name)

    def test_systemd_finds_nothing_wrong(self):
        with tempfile.TemporaryDirectory() as folder:
            for unit in self.units():
                # The program is installed nowhere here.
                text = unit.read_text().replace("/usr/bin/baton", options.baton)
                name = unit.name.replace("@.", "@0.")
                path = pathlib.Path(folder) / name
                path.write_text(text)
                run = output("systemd-analyze", "verify", "--man=no", path)
                said = [line for line in (run.stdout + run.stderr).splitlines() if name in line]
                self.assertEqual((said, run.returncode), ([], 0))

    def test_the_sandbox_is_tight(self):
        for unit in self.units():
            run = output("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=25", unit)
            self.assertEqual(run.returncode, 0, run.stdout[-600:] + run.stderr)
            level = float(re.search(r"Overall exposure level for \S+: ([\d.]+)", run.stdout).group(1))
            self.assertGreater(level, 0)

    def test_the_time_to_stop_is_longer_than_running_requests_have(self):
        run = output(options.baton, "config", "--demo")
        seconds = int(re.search(r"shutdown_timeout\W+(\d+)s", run.stdout).group(1))
        for unit in self.units():
            stop = int(re.search(r"^TimeoutStopSec=(\d+)$", unit.read_text(), re.M).group(1))
            self.assertGreaterEqual(stop, seconds + 10)


def main():
    global options
    parser = argparse.ArgumentParser()
    for name in ("baton", "units"):
        parser.add_argument(f"--{name}", required=True)
    options, rest = parser.parse_known_args()
    options.baton = str(pathlib.Path(options.baton).resolve())
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
