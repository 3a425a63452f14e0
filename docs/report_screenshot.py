"""Makes the README's picture of a report page: ``python docs/report_screenshot.py PAGE``.

PAGE is what ``spen report`` or ``spen demo`` wrote; with ``--sentence K --set POSITION=TAG`` that
of a tagger. Needs selenium (the dev extra), Chromium and its driver.
"""

import argparse
import base64
import shutil
from pathlib import Path

WIDTH, HEIGHT, TAGS_HEIGHT = 1180, 1265, 800
IMAGE = Path(__file__).parent / "images" / "report.png"


def take(page: Path, out: Path, label: str, sentence: int | None = None) -> None:
    """Set a label of the page's first example by hand, or a tag; write what is to see then.

    Args:
        page: the page.
        out: the picture.
        label: NUMBER=VALUE, or POSITION=TAG by their numbers.
        sentence: which one of a tagger's page, from 0.
    """
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for option in ("headless=new", "no-sandbox", "disable-gpu", "hide-scrollbars"):
        options.add_argument(f"--{option}")
    # Named, or Selenium would look for one on the network.
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    window = webdriver.Chrome(options=options, service=service)
    try:
        size = {"width": WIDTH, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        window.get(page.resolve().as_uri())
        window.execute_script(
            "document.querySelector('nav').style.position = 'static';"
            "if (arguments[1] !== null) {"
            "  const choice = document.querySelector('.player select');"
            "  choice.value = arguments[1];"
            "  choice.dispatchEvent(new Event('change'));"
            "  document.querySelector(`[data-position='${arguments[0].split('=')[0]}']`).click(); }"
            "document.querySelector(`[data-set='${arguments[0]}']`)?.click();"
            "document.activeElement.blur()",
            label,
            sentence,
        )
        top, height = window.execute_script(
            "const box = document.getElementById(arguments[0]).getBoundingClientRect();"
            "return [box.top + scrollY, box.height]",
            "examples" if sentence is None else "sentences",
        )
        height = HEIGHT if sentence is None else min(height - 20, TAGS_HEIGHT)
        clip = {"x": 0, "y": top + 20, "width": WIDTH, "height": height, "scale": 1}
        picture = {"format": "png", "captureBeyondViewport": True, "clip": clip}
        shot = window.execute_cdp_cmd("Page.captureScreenshot", picture)
    finally:
        window.quit()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(base64.b64decode(shot["data"]))
    print(f"Wrote {out} ({out.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Take a picture of a report page.")
    parser.add_argument("page", type=Path, nargs="?", default=Path("spen-demo/report.html"))
    parser.add_argument("--out", type=Path, default=IMAGE)
    parser.add_argument("--set", default="9=1", help="the label to set by hand, NUMBER=VALUE")
    parser.add_argument("--sentence", type=int, help="the sentence, of a tagger's page")
    arguments = parser.parse_args()
    take(arguments.page, arguments.out, arguments.set, arguments.sentence)
