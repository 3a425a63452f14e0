"""Look at the built site in headless Chromium: ``python docs/look_at_site.py [--pictures FOLDER]``.

Every page is opened as a phone and as a desk show it, light and dark; those of single names on a
phone alone. Checked: nothing is wider than the window, nothing goes wrong in the console, nothing
but files of the site is loaded, and the search finds pages, whether a server on this machine gives
them or they are opened as files. With ``--pictures`` there is something to look at, too. Needs
selenium (the dev extra), Chromium and its driver.
"""

import argparse
import json
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "site"
WIDTHS = {"phone": 390, "desk": 1280}
SEARCHES = {
    "csv": "tables",
    "images": "inputs",
    "next_question": "spen.SPENClassifier",
    "onnxruntime": "export",
    "StepRates": "StepRates",
}
"""What is looked for, and a part of the address of the page that must be found first."""

MEASURE = "return [document.documentElement.scrollWidth, innerWidth, document.body.scrollHeight]"
FOUND = """
const results = document.querySelector("#search-results");
return results.textContent.includes("Search finished")
    && [...results.querySelectorAll("li a")].map(link => link.href)
"""


def faults(window, address: str, pictures: Path | None):
    """Yield what is wrong with the site that is served at an address, a sentence each."""
    from browser import colour_scheme, resize

    pages = sorted(path for path in SITE.rglob("*.html") if "_static" not in path.parts)
    for place, width in WIDTHS.items():
        for dark in (False, True):
            colour_scheme(window, dark)
            for page in pages:
                if page.parent.name == "reference" and (dark or place == "desk"):
                    continue
                name = str(page.relative_to(SITE).with_suffix(""))
                resize(window, width)
                window.get(f"{address}/{name}.html")
                wide, inside, high = window.execute_script(MEASURE)
                if wide > inside:
                    yield f"{name} is {wide} pixels wide on a window of {inside}"
                if pictures is not None:
                    file = f"{name.replace('/', '-')}-{place}-{'dark' if dark else 'light'}.png"
                    resize(window, width, min(high, 4000))
                    window.save_screenshot(str(pictures / file))
    yield from searched(window, address)
    yield from loaded(window, address)
    # A page from a file may not fetch others, so results have no lines of text beside their titles.
    yield from searched(window, SITE.as_uri())


def searched(window, address: str):
    """Yield what a search does not find."""
    from selenium.webdriver.support.ui import WebDriverWait

    for words, wanted in SEARCHES.items():
        window.get(f"{address}/search.html?q={words}")
        found = WebDriverWait(window, 30).until(lambda each: each.execute_script(FOUND))
        if not (found and wanted in found[0]):
            yield f"A search at {address} for {words} does not find {wanted} first, but {found}"


def loaded(window, address: str):
    """Yield what was loaded from elsewhere, and what the console says."""
    for entry in window.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked = message["params"]["request"]["url"]
            if not asked.startswith((address, "data:")):
                yield f"{message['params']['documentURL']} loads {asked}"
    for entry in window.get_log("browser"):
        yield entry["message"]


class Quiet(SimpleHTTPRequestHandler):
    """Says nothing of each request."""

    def log_message(self, *_) -> None: ...


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    from browser import start

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    if not (SITE / "index.html").exists():
        sys.exit("There is no site yet: make docs")
    if options.pictures is not None:
        options.pictures.mkdir(parents=True, exist_ok=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=SITE))
    Thread(target=server.serve_forever, daemon=True).start()
    window = start()
    try:
        found = [*faults(window, f"http://127.0.0.1:{server.server_port}", options.pictures)]
    finally:
        window.quit()
        server.shutdown()
    print("\n".join(found) or "Every page fits, loads nothing from elsewhere, and can be found.")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
