"""The page /ui of `baton serve --demo`, as a person uses it, in headless Chromium; and `baton top`.

    scripts/ui_test.sh [--baton FILE] [--pictures FOLDER]
"""

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import unittest
import urllib.request

from browser import Browser
from selenium.webdriver.common.keys import Keys

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "sdk"))
from served_baton import ServedBaton  # noqa: E402

OPTIONS = argparse.Namespace(baton="", pictures="")
VIEWS = ("chat", "live", "requests")


class Load:
    """Streams of an API client, so that there is something to see."""

    def __init__(self, served, n, max_tokens):
        self._served, self._max_tokens = served, max_tokens
        self._ends = False
        self.failures = []
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(n)]
        for thread in self._threads:
            thread.start()

    def _run(self, seed):
        while not self._ends:
            body = {"prompt": "one two three " * (4 + seed * 9), "max_tokens": self._max_tokens,
                    "ignore_eos": True, "stream": True, "seed": seed}
            request = urllib.request.Request(
                self._served.url + "/v1/completions", json.dumps(body).encode(),
                {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read().decode()
            if not text.endswith("data: [DONE]\n\n"):
                self.failures.append(text[-200:])

    def end(self):
        self._ends = True
        for thread in self._threads:
            thread.join()


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.served = ServedBaton(
            OPTIONS.baton, "--demo", "--prefill", "2", "--decode", "2", "--router.local=false",
            "--log.level=warn")
        cls.addClassCleanup(cls.served.kill)
        cls.browser = Browser(OPTIONS.pictures)
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        self.browser.media()
        self.browser.size(1280, 860)
        self.show("chat")

    def tearDown(self):
        self.browser.script("sessionStorage.clear()")  # parameters of the chat
        self.assertEqual(self.browser.complaints(), [])

    def show(self, view):
        self.browser.open("about:blank")
        self.browser.open(f"{self.served.url}/ui#/{view}")
        self.browser.wait(lambda: "ready" in self.browser.text("#state"))

    def load(self, n=2, max_tokens=60):
        load = Load(self.served, n, max_tokens)
        self.addCleanup(load.end)
        return load

    def live(self):
        return self.served.get("/v1/cluster/live")

    # --- chat ---

    def test_chat_streams_an_answer_and_tells_its_figures(self):
        b = self.browser
        b.script("""
          window.lengths = new Set();
          new MutationObserver(() => {
            const words = document.querySelector(".turn.answer .words");
            if (words) window.lengths.add(words.textContent.length);
          }).observe(document.querySelector("#messages"), {subtree: true, childList: true});
        """)
        b.one("#system").send_keys("You are brief.")
        b.script("document.querySelector('#temperature').value = 0")
        b.ask("Can you tell me a story about a duck and a cellar?")
        b.wait(lambda: "waterfall" in b.text(".turn.answer .facts"))
        self.assertGreater(b.script("return window.lengths.size"), 1)  # it came in pieces
        self.assertRegex(b.text(".turn.answer .facts"),
                         r"^first token .+?ms\d+ tokens[\d,]+ per secondwaterfall$")
        first = b.text(".turn.answer .words")
        self.assertIn("duck", first.lower())
        b.ask("What is 21 + 34?")
        b.wait(lambda: len(b.all(".turn.answer .facts")) == 2)
        self.assertIn("55", b.all(".turn.answer .words")[1].text)
        b.picture("chat")
        # Equal seeds and parameters give equal words, so they were sent.
        b.one("#clear").click()
        self.assertEqual(b.all(".turn"), [])
        b.ask("Can you tell me a story about a duck and a cellar?")
        b.wait(lambda: "waterfall" in b.text(".turn.answer .facts"))
        self.assertEqual(b.text(".turn.answer .words"), first)
        b.one("#max_tokens").send_keys("3")
        b.ask("And another one?")
        b.wait(lambda: len(b.all(".turn.answer .facts")) == 2)
        self.assertIn("3 tokens", b.all(".turn.answer .facts")[1].text)
        self.assertIn("cut off by max tokens", b.all(".turn.answer .facts")[1].text)

    def test_a_refused_parameter_is_told_as_text_and_the_chat_goes_on(self):
        b = self.browser
        b.one("#seed").send_keys("99999999999999999999")
        b.ask("<img src=x onerror=alert(1)>")
        self.assertIn("seed", b.wait(lambda: b.text(".turn.answer .error")))
        self.assertEqual(b.text(".turn.user .words"), "<img src=x onerror=alert(1)>")
        self.assertEqual(b.all("img"), [])
        self.assertEqual(len(b.complaints()), 1)  # the 400 itself, by the browser
        b.one("#seed").clear()
        b.ask("What is 21 + 34?")
        b.wait(lambda: len(b.all(".turn.answer .facts")) == 2)

    def test_keys_alone_send_stop_and_walk_through_the_views(self):
        b = self.browser
        focus = "return document.activeElement.id"
        self.assertEqual(b.script(focus), "prompt")
        # An answer that does not end by itself: Escape stops it, and the server ends it too.
        b.script("""
          const real = window.fetch;
          window.fetch = (path, options) => real(path, options?.body === undefined ? options :
            {...options, body: JSON.stringify({...JSON.parse(options.body), ignore_eos: true})});
        """)
        b.press("a")
        b.press_with_shift(Keys.ENTER)
        self.assertEqual(b.script("return document.activeElement.value"), "a\n")
        b.press(Keys.BACKSPACE, Keys.BACKSPACE, "Can you tell me a story about a duck and a cellar?",
                Keys.ENTER)
        b.wait(lambda: len(b.text(".turn.answer .words")) > 20)
        self.assertEqual(b.text("#send"), "Stop")
        b.press(Keys.ESCAPE)
        b.wait(lambda: "stopped" in b.text(".turn.answer .facts"))
        self.assertEqual(b.text("#send"), "Send")
        b.wait(lambda: any(request["finish"] == "abort" for request in self.live()["finished"]))
        self.load(max_tokens=3).end()  # further rows of the list
        # Shift and Tab lead back to the tabs, arrows through them, and each focus is seen.
        for _ in range(12):
            if b.script(focus) == "tab-chat":
                break
            b.press_with_shift(Keys.TAB)
            outline = b.script("return getComputedStyle(document.activeElement).outlineStyle")
            self.assertNotEqual(outline, "none", b.script("return document.activeElement.outerHTML"))
        for key, tab in ((Keys.ARROW_RIGHT, "tab-live"), (Keys.ARROW_RIGHT, "tab-requests"),
                         (Keys.ARROW_RIGHT, "tab-chat"), (Keys.ARROW_LEFT, "tab-requests")):
            b.press(key)
            self.assertEqual(b.script(focus), tab)
            self.assertTrue(b.one("#" + tab.removeprefix("tab-")).is_displayed())
            self.assertEqual(b.one("#" + tab).get_attribute("aria-selected"), "true")
        for _ in range(6):
            b.press(Keys.TAB)
            if b.script(focus) == "list":
                break
        b.wait(lambda: len(b.all(".request")) > 2)
        b.press(Keys.HOME, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP)
        self.assertEqual(b.one("#list").get_attribute("aria-activedescendant"), "request-1")
        self.assertEqual(b.one("#request-1").get_attribute("aria-selected"), "true")

    # --- figures ---

    def test_figures_move_under_load_and_the_heat_map_fills(self):
        b = self.browser
        self.show("live")
        load = self.load()
        tiles = ("rate", "itl", "ttft", "running")
        seen = {name: set() for name in tiles}

        def have_moved():
            for name in tiles:
                seen[name].add(b.text(f"#tile-{name}"))
            return all(len(values) > 2 for values in (seen["rate"], seen["itl"], seen["ttft"]))

        b.wait(have_moved, 60)  # of a machine that does other work, too
        self.assertRegex(b.text("#tile-itl"), r"^[\d.]+ (µs|ms)$")
        self.assertGreater(b.script("""
          const heat = document.querySelector("#plot-itl .heat");
          const cells = heat.getContext("2d").getImageData(60, 0, heat.width - 70, heat.height - 24);
          return new Set(cells.data.filter((_, i) => i % 4 === 3)).size;
        """), 2)  # shades
        told = b.one("#plot-itl canvas").get_attribute("aria-label")
        self.assertRegex(told, r"^Time between tokens: p50 .+, p90 .+, p99 .+s$")
        self.assertEqual({card.get_attribute("data-name") for card in b.all(".worker")},
                         {"prefill0", "prefill1", "decode0", "decode1"})
        b.picture("live")
        b.one("#plot-itl canvas").send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ARROW_LEFT)
        self.assertIn("2 s ago", b.text("#plot-itl .keyline"))
        load.end()
        self.assertEqual(load.failures, [])

    def test_a_killed_worker_shows_in_topology_and_waterfall(self):
        b = self.browser
        self.show("live")
        load = self.load(n=3, max_tokens=1500)

        def decoding():  # past the first token, so their KV is there and no handoff can fail instead
            return [run["id"] for run in self.live()["running"] if run["tokens"] > 1 and
                    run["attempts"][-1]["decode"] == "decode0"]

        struck, *_ = b.wait(decoding)
        os.kill(self.served.children("decode")[0], 9)
        badge = b.wait(lambda: [card.text for card in b.all(".badge")
                                if re.search("lost|came back", card.text)])
        self.assertEqual(len(badge), 1)
        b.wait(lambda: "came back" in b.text(".worker[data-name=decode0] .badge"))
        b.wait(lambda: b.text("#tile-failovers")[0] != "0")
        b.picture("failover-live")
        load.end()
        self.assertEqual(load.failures, [])
        attempts, = (run["attempts"] for run in self.live()["finished"] if run["id"] == struck)
        failures = [attempt["failure"]["message"] for attempt in attempts if "failure" in attempt]
        self.assertIn("decode worker decode0 was lost", failures)
        b.one("#tab-requests").click()
        b.one("#only-failovers").click()
        row = f'.request[data-id="{struck}"]'
        b.wait(lambda: [each.click() for each in b.all(row)])
        # The page asks each second, and workers tell of a transfer when their part has ended.
        b.wait(lambda: all(b.all(f"#detail .span-{stage}")
                           for stage in ("prefill", "transfer", "decode")))
        shown = b.text("#detail")
        for part in (*failures, f"Attempt {len(attempts)}"):
            self.assertIn(part, shown)
        self.assertEqual(len(b.all(row + "[aria-selected=true] .fail")), len(failures))
        b.picture("failover-requests")

    def test_a_broken_link_is_crossed_out(self):
        b = self.browser
        self.show("live")
        b.script("""
          const real = window.fetch;
          window.fetch = async (path, options) => {
            const answer = await real(path, options);
            if (!String(path).startsWith("v1/cluster/live")) return answer;
            const told = await answer.json();
            for (const worker of told.workers) {
              if (worker.name !== "prefill0") continue;
              worker.links = worker.links.filter((link) => link.to !== "decode1");
              worker.links.push({to: "decode1", bytes_per_second: 0, tokens_under_way: 0, broken: true});
            }
            return new Response(JSON.stringify(told), {status: 200});
          };
        """)
        load = self.load()
        broken = ".wire.broken"
        b.wait(lambda: b.all(broken) and b.all(".wire:not(.broken)"))
        b.picture("broken-link")
        load.end()
        self.assertEqual(b.one(broken).get_attribute("data-link"), "prefill0 decode1")
        self.assertEqual(len(b.all(".cross")), 1)
        stroke = "return getComputedStyle(document.querySelector(arguments[0])).stroke"
        self.assertNotEqual(b.script(stroke, broken), b.script(stroke, ".wire:not(.broken)"))
        words = b.one('.worker[data-name=prefill0] .links [data-is="bad"]').text
        self.assertEqual(words, "✕ decode1: broken, no KV gets through")

    # --- looks ---

    def test_both_themes_are_readable(self):
        b = self.browser
        load = self.load()
        for theme in ("light", "dark"):
            b.media(prefers_color_scheme=theme)
            for view in VIEWS:
                b.one(f"#tab-{view}").click()
                b.wait(lambda: view == "chat" or "–" not in b.text("#tile-itl"))
                ratio, text = b.least_contrasts()[0]
                self.assertGreaterEqual(ratio, 4.5, f"{theme} {view}: {text}")
                b.picture(f"{view}-{theme}")
        load.end()
        ground = "return getComputedStyle(document.body).backgroundColor"
        dark = b.script(ground)
        for name in ("Light", "Dark", "Auto"):  # the choice wins over what the system prefers
            b.one("#theme").click()
            self.assertEqual(b.text("#theme"), name)
            self.assertEqual(b.script(ground) == dark, name != "Light")
        b.one("#theme").click()
        self.show("chat")  # and is remembered
        self.assertNotEqual(b.script(ground), dark)
        b.script("localStorage.clear()")

    def test_a_narrow_screen_shows_all_of_it(self):
        b = self.browser
        b.size(375, 812)
        b.ask("What is 21 + 34?")
        b.wait(lambda: "waterfall" in b.text(".turn.answer .facts"))
        for view in VIEWS:
            b.one(f"#tab-{view}").click()
            b.wait(lambda: view != "live" or b.all(".worker"))
            self.assertLessEqual(b.script("return document.documentElement.scrollWidth"), 375, view)
            self.assertTrue(b.one("#key").is_displayed())
            b.picture(f"{view}-narrow")

    def test_nothing_moves_for_those_who_want_it_still(self):
        b = self.browser
        turns = """
          const turn = document.createElement("div"), words = document.createElement("div");
          turn.className = "turn runs"; words.className = "words";
          turn.append(words); document.querySelector("#messages").append(turn);
          return getComputedStyle(words, "::after").animationName;
        """
        self.assertEqual(b.script(turns), "blink")
        b.media(prefers_reduced_motion="reduce")
        self.assertEqual(b.script(turns), "none")

    # --- beside the page ---

    def test_top_prints_the_same_once_where_there_is_no_terminal(self):
        self.browser.ask("What is 21 + 34?")
        self.browser.wait(lambda: "waterfall" in self.browser.text(".turn.answer .facts"))
        top = subprocess.run([OPTIONS.baton, "top", self.served.url], capture_output=True, text=True,
                             timeout=20, check=True)
        self.assertNotIn("\x1b", top.stdout)
        for part in (r"^baton .*model demo  ready  4 workers\n", r"\nprefill0 +prefill ",
                     r"\ndecode1 +decode ", r"\nnext token ", r"stop .* prefill\d decode\d"):
            self.assertRegex(top.stdout, part)
        wrong = subprocess.run([OPTIONS.baton, "top", "http://127.0.0.1:1"], capture_output=True,
                               text=True, timeout=20, check=False)
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("127.0.0.1:1", wrong.stderr)


class PageWithKeys(unittest.TestCase):
    """A server with keys: the page asks for one, keeps it to this tab, and says what it lacks."""

    def test_a_key_is_asked_for_and_its_scopes_decide_what_is_shown(self):
        folder = os.path.join(OPTIONS.pictures, "keys")
        os.makedirs(folder, exist_ok=True)
        file, keys = os.path.join(folder, "keys"), {}
        with open(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as lines:
            for name, scopes in (("app", "inference"), ("boss", "inference,admin")):
                made = subprocess.run([OPTIONS.baton, "key", name, "--scopes", scopes], check=True,
                                      capture_output=True, text=True)
                keys[name] = made.stderr.split("\n")[0]
                lines.write(made.stdout)
        served = ServedBaton(OPTIONS.baton, "--demo", "--colocated", "--decode", "1",
                             "--api-key-file", file, "--log.level=warn")
        self.addCleanup(served.kill)
        b = Browser(OPTIONS.pictures)
        self.addCleanup(b.close)
        b.open(served.url + "/ui")
        b.wait(lambda: b.one("#key-dialog").is_displayed(), what="the page asks for a key")
        b.picture("key")
        b.press(keys["app"], Keys.ENTER)
        b.wait(lambda: b.text("#model") == "demo")
        b.wait(lambda: "chat only" in b.text("#state"))
        b.ask("What is 21 + 34?")
        b.wait(lambda: "55" in b.text(".turn.answer .words"))
        b.one("#tab-live").click()
        self.assertIn("scope admin", b.text("#live-notice"))
        b.one("#key").click()
        b.press(keys["boss"], Keys.ENTER)
        b.wait(lambda: "ready" in b.text("#state"))
        self.assertFalse(b.one("#live-notice").is_displayed())
        kept = b.script("return JSON.stringify([sessionStorage, localStorage, document.cookie])")
        self.assertIn(keys["boss"], kept)
        self.assertNotIn("bk_", b.script("return JSON.stringify([localStorage, document.cookie])"))
        self.assertEqual([text for text in b.complaints() if not re.search(r"status of 40[13]", text)],
                         [])
        path = os.path.join(folder, "boss")
        with open(path, "w") as text:
            text.write(keys["boss"] + "\n")
        for arguments, status in (([], 1), (["--key-file", path], 0)):
            top = subprocess.run([OPTIONS.baton, "top", served.url, *arguments], capture_output=True,
                                 text=True, timeout=20, check=False)
            self.assertEqual(top.returncode, status, top.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--baton", required=True)
    parser.add_argument("--pictures", required=True, help="a folder for what the page looks like")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
