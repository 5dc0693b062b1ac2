"""The page in Debian's headless Chromium: what is clicked, typed and seen."""

import io
import re
import subprocess

import histories
import pytest
from conftest import HOSTILE, PROGRAM
from PIL import Image

LAPTOP = {"width": 1366, "height": 768}


class Watched:
    """A page that may not print an error, load anything from elsewhere or run what the history holds."""

    def __init__(self, browser, **options):
        self.context = browser.new_context(viewport=LAPTOP, **options)
        self.page = self.context.new_page()
        self.complaints, self.requests = [], []
        self.expected = []  # parts of complaints that a test provokes
        self.page.on("console", lambda message: self.complaints.append(message.text) if message.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, url):
        self.page.goto(url)
        self.page.wait_for_selector("main h1, main h2")
        return self.page

    def close(self):
        assert self.page.evaluate("() => window.hurt") is None
        self.context.close()
        assert [text for text in self.complaints if not any(part in text for part in self.expected)] == []


@pytest.fixture
def watched(browser):
    made = Watched(browser, color_scheme="light")
    yield made
    made.close()


def heading(page):
    return page.inner_text("main h1")


def first_task(page):
    return page.locator("main table tbody a").first


def test_clicks_lead_from_the_network_to_a_record(server, watched):
    page = watched.open(server.url)
    assert heading(page) == HOSTILE[0]
    assert "72" in page.inner_text(".tiles")
    assert page.locator("main table tbody tr").count() == 6 + len(HOSTILE)
    before = page.evaluate("() => document.querySelector('canvas').toDataURL()")
    page.click("button:text-is('Time')")
    assert page.get_attribute("button:text-is('Time')", "aria-pressed") == "true"
    assert page.evaluate("() => document.querySelector('canvas').toDataURL()") != before
    name = first_task(page).inner_text()
    first_task(page).click()
    page.wait_for_selector("text=Predicted against measured")
    assert heading(page) == name
    page.locator("section:has(h2:text-is('Measurements')) tbody a").first.click()
    page.wait_for_selector("[role=tab]:text-is('Source')")
    assert re.fullmatch(r"Record \d+", heading(page))
    assert "for" in page.inner_text("pre >> nth=0") or "parallel" in page.inner_text("pre >> nth=0")
    page.click("[role=tab]:text-is('Source')")
    assert "void" in page.inner_text("[role=tabpanel]:visible pre")
    page.click("[role=tab]:text-is('Features')")
    assert page.locator("[role=tabpanel]:visible tbody tr").count() > 10
    page.go_back()
    page.wait_for_selector("text=Predicted against measured")
    page.click("nav a:text-is('Roofline')")
    page.wait_for_selector("text=Best records against what the device can do")
    page.click("nav a:text-is('Runs')")
    page.click("text=with run 1")
    page.wait_for_selector("h1:text-is('Run 1 and run 2')")
    assert "tasks of both" in page.inner_text(".tiles")
    assert {url.split("/")[2] for url in watched.requests} == {server.url.split("/")[2]}


def test_tables_sort_and_filter(server, watched):
    page = watched.open(server.url)
    trials = "th:has-text('trials')"
    page.click(trials + " button")
    assert page.get_attribute(trials, "aria-sort") == "descending"
    column = [cell.inner_text() for cell in page.locator("tbody tr td:nth-child(6)").all()]
    assert column == sorted(column, key=int, reverse=True) and column[0] == "10" and column[-1] == "2"
    page.fill("input[type=search]", "conv2d_3x3_4_")
    assert page.locator("main table tbody tr").count() == 1
    page.fill("input[type=search]", "no such task")
    assert page.locator("text=No task matches.").is_visible()


def test_another_network_is_chosen(server, watched):
    page = watched.open(server.url)
    page.select_option("select", index=1)
    page.wait_for_selector("h1:has-text('another network')")
    assert page.inner_text("p.sub").startswith("cpu -num-cores=7 on ")
    assert page.locator("main table tbody tr").count() == 1
    # A device has another number in another history: the task is found all the same.
    page.goto(f"{server.url}#/task/{200:032x}_1x64/0")
    page.wait_for_selector("text=Predicted against measured")


def test_hostile_texts_are_texts(server, watched):
    page = watched.open(server.url)
    for text in HOSTILE[:5]:
        assert page.locator("main table td", has_text=text).first.is_visible()
    for i in range(len(HOSTILE)):
        page.goto(f"{server.url}#/task/{100 + i:032x}_1x64/0")
        page.wait_for_selector("section:has(h2:text-is('Errors by kind')) tbody tr")
        if i < 5:
            assert heading(page) == HOSTILE[i]
            assert HOSTILE[i] in page.inner_text("section:has(h2:text-is('Errors by kind')) tbody")
        page.locator("section:has(h2:text-is('Errors by kind')) tbody a").first.click()
        page.wait_for_selector("text=Failed")
    page.goto(server.url + "#/runs")
    page.wait_for_selector("main code")
    assert HOSTILE[1] in page.inner_text("main table")
    page.goto(server.url + "#/task/" + "%3Cimg src=x onerror=alert(1)%3E" + "/0")
    page.wait_for_selector("h2:text-is('Not found')")
    assert page.locator("main img, main script, main svg, main iframe").count() == 0


def test_a_measurement_appears_without_a_reload(server, watched, history, base):
    page = watched.open(server.url)
    page.wait_for_selector(".state.live")
    page.focus("main table tbody a:has-text('conv2d_3x3_5_bias_relu')")
    page.evaluate("() => { window.same = document.querySelector('main'); window.focused = document.activeElement; }")
    faster = histories.Maker(base, network=HOSTILE[0], seed=9).trial(5, 50, uuid="f" * 32, created_at=histories.START + 9000 * histories.SECOND, sketch="made/live")
    faster["timing"] = {"samples": [1e-9], "number": 10, "raced_out": False, "build_seconds": 0.2, "run_seconds": 0.1}
    histories.write(PROGRAM, history, [faster])
    page.wait_for_selector("main table tbody td:has-text('made/live')", timeout=10000)
    assert page.locator(".tile:has-text('Measurements') strong").inner_text() == "73"
    assert page.evaluate("() => window.same === document.querySelector('main')")
    assert page.evaluate("() => document.activeElement === window.focused")  # though its row has another place now


def test_a_server_that_comes_back_is_followed_again(history, watched):
    from conftest import Server

    watched.expected = ["ERR_CONNECTION", "503"]
    first = Server("ui", "--history", history, "--http", "127.0.0.1:0")
    page = watched.open(first.url)
    page.wait_for_selector(".state.live")
    first.stop()
    page.wait_for_selector(".state.lost")
    second = Server("ui", "--history", history, "--http", first.url.split("/")[2])
    page.wait_for_selector(".state.live", timeout=20000)
    second.stop()


def test_everything_is_reached_by_keys(server, watched):
    page = watched.open(server.url)
    page.wait_for_selector(".state.live")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("/")
    page.keyboard.type("conv2d_3x3_2_")
    assert page.locator("main table tbody tr").count() == 1
    page.keyboard.press("Escape")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement.matches('tbody a')"):
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Predicted against measured")
    assert heading(page) == "conv2d_3x3_2_bias_relu"
    page.goto(server.url + "#/record/1")
    page.focus("[role=tab]:text-is('Loops')")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("() => document.activeElement.textContent") == "Source"
    before = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") != before


VIEWS = ["#/", "#/roofline", "#/runs", "#/compare/1/2", f"#/task/{0:032x}_1x64/0", "#/record/1"]

# Boxes that hold text and cover each other though neither holds the other, and what is wider than the page.
FAULTS = """() => {
  const boxes = [...document.querySelectorAll('h1, h2, p, figcaption, .tile strong, .tile .label, .tile .note, nav a, button, th, td, dt, dd, canvas')]
    .filter((element) => element.checkVisibility() && (element.textContent.trim() || element.tagName === 'CANVAS') && !element.closest('.skip, .hidden'))
    .filter((element) => !element.closest('header'))
    .map((element) => ({ element, box: element.getBoundingClientRect() })).filter(({ box }) => box.width > 1 && box.height > 1);
  const faults = [];
  for (let i = 0; i < boxes.length; i++) {
    for (let j = i + 1; j < Math.min(boxes.length, i + 400); j++) {
      const a = boxes[i], b = boxes[j];
      if (a.element.contains(b.element) || b.element.contains(a.element)) continue;
      const x = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
      const y = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
      if (x > 2 && y > 2) faults.push(a.element.textContent.slice(0, 40) + ' / ' + b.element.textContent.slice(0, 40));
    }
  }
  if (document.documentElement.scrollWidth > innerWidth) faults.push('wider than the window: ' + document.documentElement.scrollWidth);
  return faults;
}"""


# Of a canvas: points that are drawn at all.
DRAWN = """canvas => {
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let drawn = 0;
  for (let i = 3; i < pixels.length; i += 4) drawn += pixels[i] > 0;
  return drawn;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1366, 480])
def test_pages_are_full_and_nothing_overlaps(browser, server, scheme, width):
    watched = Watched(browser, color_scheme=scheme)
    watched.page.set_viewport_size({"width": width, "height": 768})
    page = watched.open(server.url)
    for view in VIEWS:
        page.goto(server.url + view)
        page.wait_for_selector("main h1")
        page.wait_for_function("() => !document.querySelector('main').textContent.includes('Replaying')")
        assert page.evaluate(FAULTS) == [], view
        for canvas in page.query_selector_all("canvas"):
            assert canvas.evaluate(DRAWN) > 500, view
        image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        colors = sorted(image.getcolors(1 << 24), reverse=True)
        background = colors[0][1]
        assert (sum(background) > 600) == (scheme == "light"), view
        content = 1 - colors[0][0] / (image.width * image.height)
        assert content > 0.05 and len(colors) > 30, (view, content, len(colors))
    watched.close()


def test_a_report_opens_from_a_file_without_a_network(browser, history, tmp_path):
    done = subprocess.run([PROGRAM, "report", "--history", str(history), "--out", str(tmp_path / "r.html")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    watched = Watched(browser, offline=True)
    page = watched.open(f"file://{tmp_path}/r.html")
    assert heading(page) == HOSTILE[0]
    assert page.inner_text("#state") == "Report"
    assert page.locator("canvas").first.evaluate(DRAWN) > 500
    first_task(page).click()
    page.wait_for_selector("text=Predicted against measured")
    page.click("section:has(h2:text-is('Measurements')) tbody tr:first-child a")
    page.wait_for_selector("[role=tab]:text-is('Source')")
    assert [url for url in watched.requests if not url.startswith(("file:", "data:"))] == []
    watched.close()


def test_a_service_shows_jobs_and_fleet(watched, tmp_path):
    from conftest import Server

    watched.expected = ["ERR_CONNECTION", "503"]
    server = Server("serve", "--listen", "127.0.0.1:0", "--history", tmp_path / "h.db", "--http", "127.0.0.1:0", "--log-level", "error")
    page = watched.open(server.url + "#/jobs")
    page.wait_for_selector("h2:text-is('No jobs')")
    page.click("nav a:text-is('Fleet')")
    page.wait_for_selector("text=No worker is connected")
    worker = subprocess.Popen([PROGRAM, "worker", "--tracker", server.service, "--devices", "cpu", "--log-level", "error"], stdout=subprocess.DEVNULL)
    try:
        page.wait_for_selector("td:has-text('ready')", timeout=20000)
        page.click("nav a:text-is('Jobs')")
        done = subprocess.run([PROGRAM, "submit", "gemm", "--m", "32", "--n", "48", "--k", "64", "--target", "cpu", "--trials", "6", "--min-repeat-ms", "1",
                               "--no-check", "--service", server.service, "--wait"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        page.wait_for_selector("td:has-text('done')", timeout=10000)
        page.click("main tbody a")
        page.wait_for_selector("h1:text-is('Job 1')")
        page.locator("section:has(h2:text-is('Tasks')) tbody a").click()
        page.wait_for_selector("[role=tab]:text-is('Source')")
    finally:
        worker.terminate()
        worker.wait(20)
        server.stop()


def test_a_troubled_fleet_is_told_in_words(server, watched):
    device = {"host": HOSTILE[2], "worker": HOSTILE[0], "labels": {}, "name": "cuda:0", "target": "cuda -arch=sm_90", "device": "NVIDIA H200", "uuid": "GPU-1",
              "state": "quarantined", "reason": HOSTILE[1], "leases": 3, "runs": 7, "trials_per_s": 0.5, "utilisation": 0.25, "error_rate": 1.0, "drift": 1.31,
              "drifts": True, "excluded": True, "last_seen_s": 2.2}
    queue = {"queue": HOSTILE[4], "priority": 2, "weight": 1, "pending": 40, "leased": 3, "done": 1234}
    model = {"target_kind": "cuda", "device": "NVIDIA H200", "total": 1, "free": 0, "pending": 40, "quarantined": 1}
    fleet = {"devices": [device], "queues": [queue], "device_models": [model]}

    def with_service(route):
        document = route.fetch().json()
        document.update(has_jobs=True, has_fleet=True)
        route.fulfill(json=document)

    watched.page.route("**/api/history", with_service)
    watched.page.route("**/api/fleet", lambda route: route.fulfill(json={"schema": "diapason.page.fleet/2", "fleet": fleet}))
    watched.page.route("**/api/jobs", lambda route: route.fulfill(json={"schema": "diapason.page.jobs/2", "error": HOSTILE[1]}))
    page = watched.open(server.url + "#/fleet")
    row = page.inner_text("section:has(h2:text-is('Devices')) tbody")
    for text in ["quarantined", "excluded", "drifts 1.31", HOSTILE[0], HOSTILE[1], HOSTILE[2], "25.0%", "100.0%", "2 s ago"]:
        assert text in row, text
    assert "1,234" in page.inner_text("section:has(h2:text-is('Queues')) tbody")
    assert page.locator(".tile:has-text('Quarantined') strong").inner_text() == "1"
    assert page.evaluate(FAULTS) == []
    page.click("nav a:text-is('Jobs')")
    assert page.inner_text(".notice") == HOSTILE[1]


def test_an_empty_history_says_what_to_do(watched, base, tmp_path):
    from conftest import Server

    watched.expected = ["ERR_CONNECTION", "503"]
    path = tmp_path / "empty.db"
    histories.write(PROGRAM, path, [])
    server = Server("ui", "--history", path, "--http", "127.0.0.1:0")
    page = watched.open(server.url)
    for view in ["#/", "#/roofline", "#/runs"]:
        page.goto(server.url + view)
        page.wait_for_selector("h2:text-is('No measurements yet')")
    page.goto(server.url)
    page.wait_for_selector(".state.live")
    histories.write(PROGRAM, path, [histories.Maker(base).trial(0, 0)])
    page.wait_for_selector("h1:text-is('made-up network')")
    assert page.locator("canvas").first.evaluate(DRAWN) > 500
    server.stop()


def test_a_token_is_asked_for_once(watched, history, tmp_path):
    from conftest import Server

    watched.expected = ["401", "ERR_CONNECTION", "503"]
    tokens = tmp_path / "tokens"
    tokens.write_text("reader aaaaaaaaaaaaaaaaaaaaaaaa alice\n")
    tokens.chmod(0o600)
    server = Server("ui", "--history", history, "--http", "127.0.0.1:0", "--tokens", tokens)
    page = watched.open(server.url)
    page.fill("input[type=password]", "wrongwrongwrongwrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=none of those accepted")
    page.fill("input[type=password]", "a" * 24)
    page.keyboard.press("Enter")
    page.wait_for_selector("main table")
    assert heading(page) == HOSTILE[0]
    page.reload()
    page.wait_for_selector("main table")
    server.stop()
