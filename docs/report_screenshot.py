"""Makes the README's picture of a report page: ``python docs/report_screenshot.py PAGE``.

PAGE is what ``spen report`` or ``spen demo`` wrote. Needs selenium (the dev extra), Chromium and
its driver.
"""

import argparse
import base64
import shutil
from pathlib import Path

WIDTH, HEIGHT = 1180, 1265
IMAGE = Path(__file__).parent / "images" / "report.png"


def take(page: Path, out: Path, label: str) -> None:
    """Set a label of the page's first example by hand, and write what is to see then."""
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
            "document.querySelector(`[data-set='${arguments[0]}']`)?.click();"
            "document.activeElement.blur()",
            label,
        )
        top = window.execute_script(
            "return document.getElementById('examples').getBoundingClientRect().top + scrollY"
        )
        clip = {"x": 0, "y": top + 20, "width": WIDTH, "height": HEIGHT, "scale": 1}
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
    arguments = parser.parse_args()
    take(arguments.page, arguments.out, arguments.set)
