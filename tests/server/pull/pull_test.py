"""`baton pull` with a hub on this machine: what it fetches, where it puts it, how it goes on, what it says.

python3 pull_test.py --baton FILE [ARGUMENT OF UNITTEST]..."""

import hashlib
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from hub_server import Hub, digest_of

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEMO = ROOT / "models/demo"
BATON = None
SECONDS = 60  # for a pull to end


def demo_files():
    """The demo model as a hub has models: weights in two forms of which serving needs one, and other things."""
    files = {path.name: path.read_bytes() for path in DEMO.iterdir() if path.suffix in (".json", ".safetensors")}
    weights = files.pop("model.safetensors")
    files["model-00001-of-00001.safetensors"] = weights
    names = list(json.loads(weights[8:8 + int.from_bytes(weights[:8], "little")]))
    index = {"weight_map": {name: "model-00001-of-00001.safetensors" for name in names if name != "__metadata__"}}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    files["consolidated.safetensors"] = weights[:5000]
    files["README.md"] = b"# a model"
    files["onnx/model.onnx"] = b"other"
    return files


LARGE = ["model-00001-of-00001.safetensors", "consolidated.safetensors"]
SERVED = ["config.json", "generation_config.json", "model-00001-of-00001.safetensors", "model.safetensors.index.json",
          "tokenizer.json", "tokenizer_config.json"]


def wait_until(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {SECONDS} s"
        time.sleep(0.02)


class Pull(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="baton-pull-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.cache = self.folder / "hub"
        self.files = demo_files()
        self.hub = Hub("org/demo", self.files, LARGE, revisions=["main", "v1.0", "refs/pr/7"])
        self.addCleanup(self.hub.stop)

    def begin(self, *arguments, model="org/demo"):
        environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
        return subprocess.Popen(
            [BATON, "pull", model, "--hub", self.hub.url, "--hf-cache", str(self.cache), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    def pull(self, *arguments, model="org/demo"):
        """(status, output, errors) of a pull."""
        process = self.begin(*arguments, model=model)
        output, errors = process.communicate(timeout=SECONDS)
        return process.returncode, output, errors

    def pulled(self, *arguments, model="org/demo"):
        """The snapshot's folder of a pull that succeeds."""
        status, output, errors = self.pull(*arguments, model=model)
        self.assertEqual(status, 0, errors)
        return pathlib.Path(output.strip())

    def refused(self, *arguments, model="org/demo"):
        status, output, errors = self.pull(*arguments, model=model)
        self.assertEqual((status, output), (1, ""))
        return errors

    @property
    def repo(self):
        return self.cache / "models--org--demo"

    def blob(self, name):
        return self.repo / "blobs" / digest_of(self.files[name], name in LARGE)

    def token(self, text="hf_secret", mode=0o600):
        path = self.folder / "token"
        path.write_text(text + "\n")
        path.chmod(mode)
        return str(path)

    def names(self, snapshot):
        return sorted(path.name for path in snapshot.iterdir())

    # --- what and where ---

    def test_what_serving_needs_in_the_layout_of_the_hub(self):
        snapshot = self.pulled()
        self.assertEqual(snapshot, self.repo / "snapshots" / self.hub.commit)
        self.assertEqual(self.names(snapshot), SERVED)
        for name in SERVED:
            link = snapshot / name
            self.assertEqual(os.readlink(link), f"../../blobs/{self.blob(name).name}")
            self.assertEqual(link.read_bytes(), self.files[name])
        self.assertEqual((self.repo / "refs/main").read_text(), self.hub.commit)
        self.assertEqual(sorted(path.name for path in (self.repo / "blobs").iterdir()),
                         sorted(self.blob(name).name for name in SERVED))

    def test_a_second_pull_fetches_nothing(self):
        self.pulled()
        before = len(self.hub.requests)
        status, _, errors = self.pull()
        self.assertEqual(status, 0)
        self.assertIn("0.0 MiB fetched now", errors)
        self.assertEqual([path for _, path, _ in self.hub.requests[before:]],
                         ["/api/models/org/demo/revision/main?blobs=true"])

    def test_revisions_are_names_of_one_commit(self):
        for revision in ("v1.0", "refs/pr/7", self.hub.commit):
            snapshot = self.pulled(model="org/demo@" + revision)
            self.assertEqual(snapshot.name, self.hub.commit)
        refs = {str(path.relative_to(self.repo / "refs")) for path in (self.repo / "refs").rglob("*") if path.is_file()}
        self.assertEqual(refs, {"v1.0", "refs/pr/7"})

    def test_include_takes_files_by_pattern(self):
        snapshot = self.pulled("--include", "onnx/*", "--include", "*.md")
        self.assertEqual(self.names(snapshot), ["README.md", "onnx"])
        self.assertEqual(os.readlink(snapshot / "onnx/model.onnx"),
                         f"../../../blobs/{digest_of(b'other', False)}")
        self.assertEqual((snapshot / "onnx/model.onnx").read_bytes(), b"other")
        self.assertIn("--include *.gguf: no file of that name; there are ", self.refused("--include", "*.gguf"))

    def test_files_of_equal_content_are_fetched_once(self):
        self.files["copy.md"] = self.files["README.md"]
        before = len(self.hub.requests)
        snapshot = self.pulled("--include", "*.md")
        self.assertEqual(self.names(snapshot), ["README.md", "copy.md"])
        self.assertEqual(os.readlink(snapshot / "README.md"), os.readlink(snapshot / "copy.md"))
        self.assertEqual(sum(path.endswith(".md") for _, path, _ in self.hub.requests[before:]), 1)

    def test_one_file_of_weights_needs_no_index(self):
        self.files["model.safetensors"] = self.files["model-00001-of-00001.safetensors"]
        self.assertIn("model.safetensors", self.names(self.pulled()))
        self.assertFalse(self.blob("model-00001-of-00001.safetensors").exists())

    def test_files_come_at_most_so_many_at_a_time(self):
        for i in range(12):
            self.files[f"part{i}.bin"] = os.urandom(2000)
            self.hub.held.add(f"part{i}.bin")
        process = self.begin("--parallel", "3", "--include", "part*")
        wait_until(lambda: self.hub.at_once == 3)
        time.sleep(0.3)
        self.assertEqual(self.hub.at_once, 3)
        self.hub.held.clear()
        self.assertEqual(process.communicate(timeout=SECONDS)[1].count("12 files"), 1)
        self.assertEqual(self.hub.most_at_once, 3)

    def test_what_was_pulled_is_served_by_its_name(self):
        missing = subprocess.run([BATON, "serve", "org/demo@v1.0", "--hf-cache", str(self.cache)], capture_output=True,
                                 text=True, timeout=SECONDS)
        self.assertEqual(missing.returncode, 2)
        self.assertIn("run: baton pull org/demo@v1.0", missing.stderr)
        self.pulled()
        sys.path.insert(0, str(ROOT / "tests/sdk"))
        from served_baton import ServedBaton
        served = ServedBaton(BATON, "org/demo", "--hf-cache", str(self.cache), "--model.weight_cache",
                             str(self.folder / "weights"))
        try:
            with urllib.request.urlopen(served.url + "/v1/models", timeout=10) as answer:
                self.assertEqual(json.load(answer)["data"][0]["id"], "org/demo")
        finally:
            served.kill()

    # --- going on ---

    def test_a_cut_file_goes_on_where_it_was_cut(self):
        name = LARGE[0]
        self.hub.cuts[name] = [100_000, 50_000]
        status, _, errors = self.pull()
        self.assertEqual(status, 0, errors)
        self.assertEqual([headers.get("Range") for headers in self.hub.asked("store", name)],
                         [None, "bytes=100000-", "bytes=150000-"])
        self.assertIn(name + ": ", errors)
        self.assertEqual(self.blob(name).read_bytes(), self.files[name])

    def test_the_next_pull_goes_on_after_a_kill(self):
        name = LARGE[0]
        self.hub.held.add(LARGE[0])
        self.hub.cuts[name] = [120_000]
        process = self.begin()
        part = self.blob(name).with_name(self.blob(name).name + ".incomplete")
        wait_until(lambda: part.exists() and part.stat().st_size == 120_000)
        process.kill()
        process.communicate()
        self.assertFalse((self.repo / "snapshots" / self.hub.commit).exists())
        self.assertFalse((self.repo / "refs/main").exists())
        self.hub.held.clear()
        self.pulled()
        self.assertEqual(self.hub.asked("store", name)[-1]["Range"], "bytes=120000-")
        self.assertFalse(part.exists())

    def test_a_damaged_part_is_fetched_anew(self):
        name = LARGE[0]
        (self.repo / "blobs").mkdir(parents=True)
        part = self.blob(name).with_name(self.blob(name).name + ".incomplete")
        part.write_bytes(b"x" * 1000)
        status, _, errors = self.pull()
        self.assertEqual(status, 0, errors)
        self.assertIn("what an earlier try left is damaged", errors)
        self.assertEqual(self.blob(name).read_bytes(), self.files[name])

    def test_a_part_that_is_too_long_is_thrown_away(self):
        name = LARGE[0]
        (self.repo / "blobs").mkdir(parents=True)
        part = self.blob(name).with_name(self.blob(name).name + ".incomplete")
        part.write_bytes(self.files[name] + b"x")
        self.pulled()
        self.assertEqual(self.blob(name).read_bytes(), self.files[name])

    def test_a_whole_part_needs_no_bytes(self):
        name = LARGE[0]
        (self.repo / "blobs").mkdir(parents=True)
        self.blob(name).with_name(self.blob(name).name + ".incomplete").write_bytes(self.files[name])
        self.pulled()
        self.assertEqual(self.hub.asked("store", name), [])

    def test_a_host_without_ranges_sends_all(self):
        name = LARGE[0]
        self.hub.ranges = False
        self.hub.cuts[name] = [100_000]
        self.pulled()
        self.assertEqual(self.blob(name).read_bytes(), self.files[name])

    def test_a_busy_hub_is_asked_again(self):
        self.hub.statuses = [503, 429]
        status, _, errors = self.pull()
        self.assertEqual(status, 0, errors)
        self.assertIn("HTTP 503; goes on in 1s", errors)

    def test_a_range_that_is_not_there(self):
        name = LARGE[0]
        self.hub.told[name] = (len(self.files[name]) + 10, digest_of(self.files[name], True))
        self.hub.files = self.files
        errors = self.refused()
        self.assertIn("shorter than it tells", errors)

    def test_two_pulls_at_a_time_take_turns(self):
        self.hub.held.add(LARGE[0])
        first = self.begin()
        wait_until(lambda: self.hub.asked("store", LARGE[0]))
        second = self.begin()
        self.assertIn("another pull of org/demo runs; waiting", second.stderr.readline())
        self.hub.held.clear()
        self.assertEqual((first.wait(SECONDS), second.wait(SECONDS)), (0, 0))
        self.assertEqual(len(self.hub.asked("store", LARGE[0])), 1)
        for process in (first, second):
            process.stdout.close()
            process.stderr.close()

    # --- refusals ---

    def test_wrong_bytes_are_not_kept(self):
        for name, kind in ((LARGE[0], "SHA-256"), ("tokenizer.json", "git blob id")):
            with self.subTest(name):
                self.hub.told = {name: (len(self.files[name]), ("0" * 64 if name in LARGE else "0" * 40))}
                self.assertIn(f"{name}: its {kind} is ", self.refused())
                self.assertFalse((self.repo / "snapshots" / self.hub.commit).exists())
                digest = self.hub.told[name][1]
                self.assertFalse((self.repo / "blobs" / digest).exists())
                self.assertEqual((self.repo / "blobs" / (digest + ".incomplete")).read_bytes(), b"")

    def test_too_many_bytes(self):
        name = LARGE[0]
        self.hub.told[name] = (100, digest_of(self.files[name], True))
        self.assertIn("more bytes came than the 100", self.refused())

    def test_the_token_goes_to_no_other_host(self):
        self.hub.token = "hf_secret"
        self.assertIn("there is no model org/demo, or it is private; look at the name, or give a token with "
                      "--token-file FILE", self.refused())
        self.pulled("--token-file", self.token())
        asked = self.hub.asked("main", LARGE[0])
        self.assertEqual([headers["Authorization"] for headers in asked], ["Bearer hf_secret"])
        moved = self.hub.asked("store", LARGE[0])
        self.assertEqual([headers.get("Authorization") for headers in moved], [None])
        self.assertIn("the token is wrong", self.refused("--token-file", self.token("hf_other")))

    def test_certificates(self):
        key, certificate = str(self.folder / "key.pem"), str(self.folder / "cert.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate,
                        "-days", "1", "-subj", "/CN=hub", "-addext", "subjectAltName=IP:127.0.0.1"],
                       check=True, capture_output=True)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
        self.hub.stop()
        self.hub = Hub("org/demo", self.files, LARGE, tls=tls)
        self.addCleanup(self.hub.stop)
        self.assertIn("give the authority of the hub's certificate with --ca FILE", self.refused())
        self.assertIn("--ca FILE", self.refused("--ca", key + "x"))
        self.pulled("--ca", certificate, "--include", "config.json", "--token-file", self.token())
        self.assertIn("which leads to no http:// one", self.refused("--ca", certificate))
        self.assertEqual(self.hub.asked("store", LARGE[0]), [])

    def test_token_files(self):
        for text, mode, error in (("", 0o600, "is empty"), ("two words", 0o600, "a token is one word"),
                                  ("hf_secret", 0o644, "chmod 600")):
            with self.subTest(error):
                self.assertIn(error, self.refused("--token-file", self.token(text, mode)))
        self.assertEqual(self.hub.requests, [])
        errors = subprocess.run([BATON, "pull", "org/demo", "--hub", "http://hub.example", "--token-file", self.token()],
                                capture_output=True, text=True, timeout=SECONDS).stderr
        self.assertIn("a token would travel readable", errors)

    def test_gated_models(self):
        self.hub.gate = "GatedRepo"
        self.assertIn(f"accept its terms on {self.hub.url}/org/demo", self.refused())
        self.assertIn("the token's account has no access", self.refused("--token-file", self.token()))

    def test_missing_things(self):
        self.assertIn(f"has no revision v9; {self.hub.url}/org/demo/tree/main lists", self.refused(model="org/demo@v9"))
        self.assertIn("there is no model org/other", self.refused(model="org/other"))
        self.assertIn("is no model of a hub; write ORG/NAME", self.refused(model="../etc/passwd"))
        del self.files["model-00001-of-00001.safetensors"]
        self.assertIn("names model-00001-of-00001.safetensors, which is not in the repository", self.refused())
        del self.files["model.safetensors.index.json"]
        self.assertIn("consolidated.safetensors (of 1), which is no checkpoint", self.refused())
        self.files["demo.Q8_0.gguf"] = b"GGUF"
        self.assertIn("take one, --include demo.Q8_0.gguf", self.refused())

    def test_names_that_lead_out_of_the_cache(self):
        for name in ("../../evil", "/etc/evil", "a//b", "a/./b"):
            with self.subTest(name):
                self.hub.files = dict(self.files, **{name: b"evil"})
                self.assertIn("a file without a name, size or digest that can be", self.refused())
        self.assertFalse((self.folder / "evil").exists())

    def test_no_hub_there(self):
        self.hub.stop()
        self.hub.stop = lambda: None
        errors = self.refused()
        self.assertIn("next try in 1s", errors)
        self.assertIn("look at --hub, at the network, and at https_proxy", errors)

    def test_a_page_that_is_no_hub(self):
        self.hub.url += "/page"
        self.assertIn(f"HTTP 401 of {self.hub.url}/api/models/org/demo/revision/main: ", self.refused())

    def test_no_room(self):
        name = LARGE[0]
        self.hub.told[name] = (1 << 49, digest_of(self.files[name], True))
        self.assertIn("MiB are free in ", self.refused())
        self.assertEqual(self.hub.asked("main", name), [])

    def test_a_folder_that_cannot_be_made(self):
        (self.folder / "file").write_text("")
        self.cache = self.folder / "file/hub"
        self.assertIn("--hf-cache", self.refused())


if __name__ == "__main__":
    BATON = os.path.realpath(sys.argv[sys.argv.index("--baton") + 1])
    at = sys.argv.index("--baton")
    del sys.argv[at:at + 2]
    unittest.main()
