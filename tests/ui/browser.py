"""Debian's headless Chromium with the page /ui, as the tests drive it."""

import os
import time

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

# The contrast of every text that is seen with what is behind it, the least first.
_CONTRASTS = """
const channels = (text) => (text.match(/[0-9.]+/g) ?? []).map(Number);
const light = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
const ground = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = channels(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] > 0.99) return colour;
  }
  return [255, 255, 255];
};
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
  if (element.closest(".hidden, .probe, .skip, noscript")) continue;
  const style = getComputedStyle(element);
  const text = element.closest("svg") ? style.fill : style.color;
  const [a, b] = [luminance(channels(text)), luminance(ground(element))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  found.push([ratio, walker.currentNode.data.trim().slice(0, 40)]);
}
return found.sort((a, b) => a[0] - b[0]).slice(0, 3);
"""


class Browser:
    def __init__(self, pictures):
        options = webdriver.ChromeOptions()
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--window-size=1280,860", "--force-device-scale-factor=1", "--lang=en",
                     "--hide-scrollbars", "--no-first-run", "--disable-extensions"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        self.driver.set_script_timeout(20)
        self._pictures = pictures
        os.makedirs(pictures, exist_ok=True)

    def close(self):
        self.driver.quit()

    def open(self, url):
        self.driver.get(url)

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.script("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def press(self, *keys):
        """Keys to whatever has the focus."""
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def press_with_shift(self, key):
        webdriver.ActionChains(self.driver).key_down(Keys.SHIFT).send_keys(key).key_up(
            Keys.SHIFT).perform()

    def ask(self, text):
        self.one("#prompt").send_keys(text, Keys.ENTER)

    def wait(self, condition, seconds=15, what="the page"):
        deadline = time.monotonic() + seconds
        while True:
            is_last = time.monotonic() > deadline  # also where the machine stood still meanwhile
            try:
                value = condition()
                if value:
                    return value
            except StaleElementReferenceException:
                pass  # drawn anew meanwhile
            if is_last:
                self.picture("failed")
                raise AssertionError(f"{what}: still not so after {seconds} s")
            time.sleep(0.02)

    def media(self, **features):
        """Emulates what the user prefers, such as prefers_color_scheme="dark"."""
        told = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": told})

    def size(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500})

    def picture(self, name):
        self.driver.save_screenshot(os.path.join(self._pictures, name + ".png"))

    def least_contrasts(self):
        return self.script(_CONTRASTS)

    def complaints(self):
        """What the console told since the last call: errors, and breaches of the policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")
                if entry["level"] in ("SEVERE", "WARNING")]
