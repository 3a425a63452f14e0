"""A real browser for the tests of pages: headless Chromium, driven by Selenium."""

import shutil

import pytest

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def start(width: int = 1280, dark: bool = False):
    """Return a browser with a window of this width, or skip the test and say why."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    browser = next(filter(None, map(shutil.which, CHROMIUM)), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no browser: Debian has one as chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for option in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{option}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # Named, or Selenium would look for one on the network.
    service = webdriver.ChromeService(executable_path=driver)
    window = webdriver.Chrome(options=options, service=service)
    resize(window, width)
    colour_scheme(window, dark)
    return window


def resize(window, width: int, height: int = 900) -> None:
    """Give the page a window of this many pixels."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    window.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def colour_scheme(window, dark: bool) -> None:
    """Let the page believe that its reader prefers dark or light."""
    value = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    window.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [value]})
