"""A real browser for the tests of pages: headless Chromium, driven by Selenium."""

import shutil

import pytest

CONTRAST = """
const light = (c) => { const [r, g, b] = c.map(v => { v /= 255;
  return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const parse = (s) => { const n = s.match(/[\\d.]+/g).map(Number);
  return n.length < 4 || n[3] > 0 ? n.slice(0, 3) : null; };
const behind = (e) => { for (; e; e = e.parentElement) {
  const c = parse(getComputedStyle(e).backgroundColor); if (c) return c; }
  return [255, 255, 255]; };
const worst = {};
for (const e of document.querySelectorAll('body *')) {
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (!own || !e.getClientRects().length || e.disabled) continue;
  if (e.closest('script, style, title')) continue;
  const style = getComputedStyle(e);
  const colour = parse(e instanceof SVGElement ? style.fill : style.color);
  const [a, b] = [light(colour), light(behind(e))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) worst[e.tagName + '.' + e.getAttribute('class')] = ratio;
}
return worst;
"""
"""Names what has less contrast than the 4.5 that the WCAG ask of every text."""

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
