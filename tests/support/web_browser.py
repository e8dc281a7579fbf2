"""A real browser for the page: Chromium by its driver, the one without any window where it is there, unless
`CHROMIUM=chromium` says otherwise; and what a test waits for in it."""

import contextlib
import functools
import hashlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from urllib.parse import urlencode

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from interop.jars import cached
from needed_tools import tool

SHELL, CHROMIUM = "chromium-headless-shell", "chromium"
WAIT_SECONDS = 180
# One process draws all pages; else each test's server, another origin, gets one of its own, and so does each page
# that is left for another one and kept for the way back.
FLAGS = """
--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run --disable-sync
--disable-background-networking --disable-component-update --hide-scrollbars --disable-extensions --disable-breakpad
--renderer-process-limit=1 --disable-site-isolation-trials --disable-back-forward-cache
--disable-features=SpareRendererForSitePerProcess"""

COLOUR_RULES = ("color-contrast", "link-in-text-block")
"""The rules of axe-core that look at colours."""

SHOWN = """
const [selector, text] = arguments;
const options = {opacityProperty: true, visibilityProperty: true};
for (const each of document.querySelectorAll(selector)) {
  const box = each.closest("select") ?? each;
  const said = (each.innerText ?? each.textContent).replace(/[\\t\\u00a0]/g, " ");
  if (box.checkVisibility(options) && box.getClientRects().length && said.includes(text)) return each;
}
return null;"""
"""The first element of a selector that is shown and holds a text: one question instead of three for each element."""


class Browser:
    """One browser; `server` is the origin that it is pointed at."""

    def __init__(self, profile: Path) -> None:
        options = ChromeOptions()
        for flag in (*FLAGS.split(), f"--user-data-dir={profile}", "--window-size=1400,900"):
            options.add_argument(flag)
        name = os.environ.get("CHROMIUM") or next(filter(shutil.which, (SHELL, CHROMIUM)), CHROMIUM)
        if name == SHELL:
            options.set_capability("browserName", "chrome-headless-shell")
        options.binary_location = tool(name)  # the driver's own search would ask the network
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        options.set_capability("unhandledPromptBehavior", "ignore")
        self.driver = Chrome(options=options, service=Service(tool("chromedriver")))
        self.driver.set_script_timeout(WAIT_SECONDS)
        self.server = ""

    def close(self) -> None:
        self.driver.quit()

    def open(self, view, **parameters) -> None:
        """Open a view by its address, as one that was sent by a colleague."""
        self.driver.get(f"{self.server}/{view}{'?' + urlencode(parameters) if parameters else ''}")

    def until(self, condition):
        """Wait until a condition holds; what it came to."""
        deadline, pause = time.monotonic() + WAIT_SECONDS, 0.02
        while time.monotonic() < deadline:
            with contextlib.suppress(StaleElementReferenceException):
                if outcome := condition():
                    return outcome
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)  # each question takes all processes of the browser a few milliseconds
        raise TimeoutError(f"not within {WAIT_SECONDS} seconds")

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def see(self, selector: str, text: str = "") -> WebElement:
        """Wait for an element that is shown and holds a text."""

        element = self.until(lambda: self.driver.execute_script(SHOWN, selector, text))
        assert isinstance(element, WebElement)
        return element

    def click(self, selector: str, text: str = "") -> None:
        """Click on what `see` finds, brought to the middle, where nothing lies over it."""
        element = self.see(selector, text)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def texts(self, selector: str) -> list[str]:
        return [each.text for each in self.all(selector)]

    def press(self, *keys: str) -> None:
        self.driver.switch_to.active_element.send_keys(*keys)

    def find(self, text: str) -> None:
        box = self.see("#text")
        box.clear()
        box.send_keys(text, Keys.ENTER)

    @property
    def place(self) -> str:
        return self.driver.current_url.removeprefix(self.server)

    def run(self, script):
        return self.driver.execute_script(script)

    def complaints(self) -> list[str]:
        """What the browser has logged since it was asked last: errors of scripts, and what the policy forbade."""
        lines = self.driver.get_log("browser")
        return [line["message"] for line in lines if line["level"] in ("SEVERE", "WARNING")]

    def violations(self, *rules: str) -> list[str]:
        """What axe-core finds in what is shown: the rule, and the first element that breaks it; of some rules, or all.

        Colours are those that the page comes to, not one on the way there.
        """
        self.until(lambda: self.run("return document.getAnimations().length === 0"))
        if not self.run("return 'axe' in window"):
            self.run(f"{axe_source()}; window.axe = axe;")
        found = self.driver.execute_async_script(
            "const [rules, done] = arguments;"
            "const some = rules.length ? {runOnly: {type: 'rule', values: rules}} : {};"
            "axe.run(document, {resultTypes: ['violations'], ...some}).then("
            "(all) => done(all.violations.map((each) => `${each.id}: ${each.nodes[0].html.slice(0, 200)}`)), "
            "(error) => done([String(error)]));",
            list(rules),
        )
        return [str(each) for each in found]

    def keep(self, name: str) -> None:
        """Keep a picture of what is seen now, where $SCREENSHOTS names a directory for them."""
        directory = os.environ.get("SCREENSHOTS")
        if directory:
            Path(directory).mkdir(parents=True, exist_ok=True)
            self.driver.save_screenshot(f"{directory}/{name}.png")


ROOT = Path(__file__).parents[2]
LOCKED = ROOT / "tests" / "broker" / "web" / "browser" / "axe"
FILES = ("package.json", "package-lock.json")
INSTALL_SECONDS = 300


@functools.cache
def axe_source() -> str:
    checksum = hashlib.sha256(b"".join((LOCKED / name).read_bytes() for name in FILES)).hexdigest()
    folder = cached(f"axe-{checksum[:16]}", _install)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")


def _install(folder: Path) -> None:
    folder.mkdir()
    for name in FILES:
        shutil.copy(LOCKED / name, folder / name)
    command = [tool("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=INSTALL_SECONDS)
