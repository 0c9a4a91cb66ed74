# SPDX-License-Identifier: Apache-2.0
"""The live page, in a real browser where one is installed, and its answers to everybody else."""

import http.client
import json
import os
import pathlib
import re
import socket
import threading
import time
import unittest

import testlib
from testlib import DEADLINE, browser, program, wait_until
from testlib.fake_agents import FakeAgent, fake_job
from testlib.store_client import Peer
from testlib.terminal import Terminal

HTML = {"Accept": "text/html,application/xhtml+xml"}
VERDICT = "document.getElementById('verdict')?.textContent"
# An update in which all 10,000 workers look otherwise than before, each a run of its own.
EVERY_CELL = """
  cells = Array.from({ length: 10000 }, (_, i) => [i, 1, 2, %d + i %% 2, 0]);
  text = JSON.stringify({ ...frame, seq: seq + 1, whole: false, nodes: undefined, cells });
  true"""
UPDATE = "new Promise((done) => setTimeout(() => done(update(text)), 0))"
CONTRAST = """(() => {
  const style = getComputedStyle(document.documentElement);
  const light = (name) => {
    const n = parseInt(style.getPropertyValue("--" + name).trim().slice(1), 16);
    const part = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(n >> 16) + 0.7152 * part(n >> 8 & 255) + 0.0722 * part(n & 255);
  };
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const all = {};
  for (const name of ["front", "faint", "bad", "run", "lag", "good", "wait", "mark"]) all[name] = ratio(name, "back");
  for (const name of ["front", "faint"]) all[name + " on panel"] = ratio(name, "panel");
  return all;
})()"""
# Where pictures are kept, for those who want to look at them: those of docs/pictures/, too.
PICTURES = os.environ.get("CT_PAGE_PICTURES")


class Page(testlib.Case):
    def setUp(self):
        super().setUp()
        if os.environ["HAVE_HTTP"] != "1":
            self.skipTest("this build has no HTTP")
        self.daemon, self.port = self.start_ctrdzvd()

    def job(self, nodes, workers, step=1204, **more):
        agents = fake_job(self.port, nodes, workers, step, **more)
        for agent in agents:
            self.addCleanup(agent.close)
        return agents

    def ask(self, path, method="GET", **headers):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        self.addCleanup(c.close)
        c.request(method, path, headers=headers)
        answer = c.getresponse()
        answer.text = answer.read().decode()
        return answer

    def events(self):
        s = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)
        self.addCleanup(s.close)
        s.sendall(b"GET /page/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return s

    def data(self):
        return json.loads(self.ask("/page/data").text)


class Answers(Page):
    def test_a_browser_gets_the_page_and_curl_a_list(self):
        page = self.ask("/", **HTML)
        self.assertEqual((page.status, page.getheader("Content-Type")), (200, "text/html; charset=utf-8"))
        policy = page.getheader("Content-Security-Policy")
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)
        self.assertNotRegex(page.text, r"https?://")
        pages = self.ask("/", Accept="*/*")
        self.assertEqual((pages.status, pages.getheader("Content-Type")), (200, "application/json"))
        self.assertEqual(pages.getheader("Cache-Control"), "no-store")  # the browser asks for the same address
        self.assertIn("/metrics", json.loads(pages.text)["pages"])

    def test_other_names_and_other_pages_are_refused(self):
        here = f"127.0.0.1:{self.port}"
        for path in ("/", "/page/data", "/page/events", "/page/rank/0/0"):
            for headers in (
                {"Host": f"evil.example:{self.port}"},
                {"Host": here, "Origin": "http://evil.example"},
                {"Host": here, "Origin": "null"},
            ):
                self.assertEqual(self.ask(path, **HTML, **headers).status, 403, (path, headers))
        self.assertEqual(self.ask("/", **HTML, Host=here, Origin="http://" + here).status, 200)

    def test_a_name_that_points_here_opens_no_page_to_a_browser(self):
        evil = {"Host": f"evil.example:{self.port}"}
        for path in ("/status", "/metrics", "/readyz", "/keys"):
            for browser_says in ({"Accept-Language": "en"}, {"Accept-Language": ""}, {"Origin": "http://evil.example"},
                                 {"Sec-Fetch-Mode": "navigate"}):  # fmt: skip
                self.assertEqual(self.ask(path, **evil, **browser_says).status, 403, path)
            # Prometheus may know this machine by any name.
            self.assertIn(self.ask(path, **evil).status, (200, 404, 503), path)
        self.assertEqual(self.ask("/status", **{"Accept-Language": "en"}).status, 200)

    def test_another_page_reads_nothing_if_the_browser_sends_no_origin(self):
        for path in ("/", "/status", "/metrics", "/readyz", "/page/data"):
            for site in ("cross-site", "same-site"):
                answer = self.ask(path, **{"Sec-Fetch-Site": site, "Accept": "text/html"})
                self.assertEqual(answer.status, 403)
                self.assertIn("another page has asked, as the Sec-Fetch-Site", json.loads(answer.text)["error"])
            good = self.ask(path, **{"Sec-Fetch-Site": "same-origin", "Accept": "text/html"})
            self.assertIn(good.status, (200, 503), path)
        link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        self.assertEqual(self.ask("/", **HTML, **link).status, 200)

    def test_a_worker_is_shown_by_its_rank(self):
        self.job(1, 2)
        wait_until(lambda: self.ask("/page/rank/0/1").status == 200, "the worker is told of")
        worker = json.loads(self.ask("/page/rank/0/1").text)
        self.assertEqual((worker["worker"]["rank"], worker["worker"]["progress"]["step"]), (1, 1204))
        self.assertEqual((worker["tail"], worker["locked"]), ([], False))
        for path in ("0/2", "1/0", "0/-1", "0/", "x/1", "0/1/2", "", "0", "9" * 40 + "/1"):
            self.assertEqual(self.ask("/page/rank/" + path).status, 404, path)

    def test_nothing_else_is_changed_by_a_request(self):
        for path in ("/", "/page/data", "/page/rank/0/0", "/page/session/", "/page"):
            self.assertEqual(self.ask(path, "POST").status, 405, path)
        for path in ("/page/session", "/page/ask/output/0/0"):
            self.assertEqual(self.ask(path).status, 405, path)
        self.assertEqual(self.ask("/page/session", "POST").status, 403)
        self.assertEqual(self.ask("/page/session", "POST", Authorization="Bearer ").status, 403)

    def asked(self, path, agent=None, text="", ok=True):
        """The answer to a question, which this agent answers; and what the agent was asked."""
        queries = []
        helper = threading.Thread(target=lambda: queries.append(agent.answer(text, ok)))
        if agent is not None:
            helper.start()
        answer = self.ask("/page/ask/" + path, "POST")
        if agent is not None:
            helper.join(DEADLINE)
        return answer, queries

    def test_a_question_gets_the_answer_of_the_agent(self):
        agent = FakeAgent(self.port, "gpu-0", 2, 1, queries=True)
        self.addCleanup(agent.close)
        agent.start(1)
        wait_until(lambda: self.ask("/page/rank/0/1").status == 200, "the worker is told of")
        words = "<b>\x1b]0;x\x07\u202e" + "y" * 40000
        answer, (query,) = self.asked("output/0/1", agent, words)
        self.assertEqual(answer.status, 200)
        self.assertEqual((query["kind"], query["rank"], query["generation"]), ("output", 1, 0))
        text = json.loads(answer.text)["text"]
        self.assertTrue(text.startswith("<b>\x1b]0;x\x07\u202e"), text[:20])
        self.assertLessEqual(len(text.encode()), 32768)
        answer, _ = self.asked("output/0/0", agent, "not today", ok=False)
        self.assertEqual((answer.status, json.loads(answer.text)), (200, {"error": "not today"}))
        for path in ("output/0/2", "output/1/0", "output/0/-1", "output/0/", "output", "heap/0/0", ""):
            self.assertEqual(self.asked(path)[0].status, 404, path)
        strange = {"Origin": "http://evil.example"}
        self.assertEqual(self.ask("/page/ask/output/0/0", "POST", **strange).status, 403)
        # An answer to no question, and one that comes twice, change nothing.
        agent.send(type="result", id=4711, ok=True, text="x")
        agent.send(type="result", id=query["id"], ok=True, text="x")
        answer, _ = self.asked("output/0/0", agent, "here")
        self.assertEqual(json.loads(answer.text)["text"], "here")

    def test_a_question_without_an_answer_times_out(self):
        old = self.job(1, 2)[0]
        wait_until(lambda: self.ask("/page/rank/0/1").status == 200, "the worker is told of")
        self.assertIn("too old", json.loads(self.asked("output/0/0")[0].text)["error"])
        silent = FakeAgent(self.port, "gpu-9", 1, 1, run_id="silent", queries=True)
        self.addCleanup(silent.close)
        silent.start(1)
        wait_until(lambda: self.ask("/page/rank/1/0").status == 200, "the worker is told of")
        self.assertEqual(self.asked("output/1/0")[0].status, 504)
        silent.hear("query")
        # The question of a client that is gone, and that to an agent that leaves, end as well.
        gone = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)
        gone.sendall(b"POST /page/ask/output/1/0 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        silent.hear("query")
        gone.close()
        leaving = threading.Thread(target=lambda: (silent.hear("query"), silent.close()))
        leaving.start()
        self.assertEqual(self.asked("output/1/0")[0].status, 503)
        leaving.join(DEADLINE)
        old.beat()
        self.assertEqual(self.ask("/healthz").status, 200)

    def test_questions_beyond_the_rate_are_refused(self):
        agent = FakeAgent(self.port, "gpu-0", 1, 1, queries=True)
        self.addCleanup(agent.close)
        agent.start(1)
        wait_until(lambda: self.ask("/page/rank/0/0").status == 200, "the worker is told of")
        connections, refused = [], 0
        for _ in range(100):  # nobody answers, so 16 are open at most
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
            self.addCleanup(c.close)
            c.request("POST", "/page/ask/output/0/0")
            connections.append(c)
        for c in connections:
            refused += c.getresponse().status == 503
        self.assertGreater(refused, 0)
        self.assertEqual(self.ask("/healthz").status, 200)

    def test_events_bring_changes(self):
        (agent,) = self.job(1, 8)
        stream, text = self.events(), b""
        while b'"whole":false' not in text or b"[3,1,2,200,0]" not in text:
            text += stream.recv(65536)
            agent.workers[3]["step"] = 1004
            agent.beat()
        self.assertEqual(text.count(b"text/event-stream"), 1)
        self.assertIn(b'"whole":true', text)

    def test_viewers_beyond_the_limit_are_told_so(self):
        streams = [self.events() for _ in range(64)]
        for stream in streams:
            self.assertTrue(stream.recv(12).endswith(b"200"))
        self.assertTrue(self.events().recv(12).endswith(b"503"))
        streams[0].close()
        wait_until(lambda: self.events().recv(12).endswith(b"200"), "a place is free again")
        self.assertEqual(self.ask("/healthz").status, 200)

    def test_a_thousand_viewers_that_read_nothing(self):
        agents = self.job(4, 250)
        streams = []
        for _ in range(1000):
            try:
                streams.append(self.events())
            except OSError:
                break  # that is a bound as well
        # Requests that were refused end their connections one after the other, and until then there
        # may be no room for another one.
        def patient(path):
            def answer():
                try:
                    got = self.ask(path)
                except (OSError, http.client.HTTPException):
                    return None
                return got if got.status == 200 else None

            return json.loads(wait_until(answer, f"the store has room for {path}").text)

        last = patient("/page/data")["seq"]
        while patient("/page/data")["seq"] < last + 3:
            for agent in agents:
                for worker in agent.workers[::2]:
                    worker["step"] += 1
                agent.beat()
        self.assertLess(patient("/status")["store"]["memory"], 64 << 20)
        self.assertEqual(self.ask("/healthz").status, 200)
        self.assertEqual(patient("/page/data")["jobs"][0]["cells"], 1000)


class FullStore(Page):
    def fill(self, size):
        """Stores values until one of this size is refused."""
        for n in range(10000):
            writer = Peer(self.port)
            self.addCleanup(writer.close)
            try:
                writer.set(b"/%d/%d" % (size, n), bytes(size))
                if not writer.ping():
                    return
            except (EOFError, OSError):
                return
        self.fail("the limit was never reached")

    def test_what_does_not_fit_is_refused(self):
        self.daemon, self.port = self.start_ctrdzvd("--max-memory", "32M")
        agents = self.job(40, 250)
        for agent in agents:
            for worker in agent.workers:
                worker["step"] += worker["rank"] % 2
            agent.beat()
        wait_until(lambda: len(self.data()["cells"]) == 10000, "each worker is a run of its own")
        for size in (1 << 20, 1 << 16, 1 << 12):
            self.fill(size)
        answer = self.ask("/page/data")
        self.assertEqual((answer.status, "--max-memory" in answer.text), (503, True))
        # A stream gets an end instead of a frame.
        stream, text = self.events(), b""
        while part := stream.recv(65536):
            text += part
        self.assertNotIn(b"cells", text)
        self.assertEqual(self.ask("/healthz").status, 200)


class OfCtrun(Page):
    """The page of a ctrun, with its link."""

    def setUp(self):
        super().setUp()
        self.token = self.tmp / "token"
        self.token.write_text("0123456789abcdef" * 2 + "\n")
        self.token.chmod(0o600)
        self.fails = self.script("fails.sh", "echo the secret of rank $RANK >&2; exit 7\n")

    def lingering(self, *args):
        """A ctrun whose job has failed, and what it says."""
        ctrun = self.start_ctrun(
            "--print-url", "--linger", "600", *args, "--no-python", "sh", self.fails
        )
        line = ctrun.wait_for("the live page stays at")
        self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", line).group(1))
        return ctrun, line

    def rank(self, bearer=None):
        headers = {"Authorization": "Bearer " + bearer} if bearer else {}
        return json.loads(self.ask("/page/rank/0/0", **headers).text)

    def test_it_stays_after_the_end(self):
        ctrun, line = self.lingering()
        self.assertNotIn("#key", line)
        self.assertEqual(self.data()["jobs"][0]["failures"][0]["rank"], 0)
        self.assertEqual(self.rank()["tail"], ["the secret of rank 0"])
        ctrun.signal(2)
        self.assertEqual(ctrun.wait().code, 7)

    def test_a_link_shows_what_workers_wrote_once(self):
        ctrun, line = self.lingering("--token-file", str(self.token))
        first = re.search(r"live page: \S+#key=(\w+)", ctrun.err).group(1)
        key = re.search(r"#key=(\w{64})", line).group(1)
        self.assertNotIn("secret", self.ask("/page/data").text)
        self.assertEqual(self.rank()["tail"], [])
        self.assertTrue(self.rank()["locked"])
        for wrong in ("", "x", key, "0" * 64):
            self.assertTrue(self.rank(wrong)["locked"], wrong)
        # The newer link has taken the place of the older one.
        for wrong in (first, "0" * 64):
            answer = self.ask("/page/session", "POST", Authorization="Bearer " + wrong)
            self.assertEqual(answer.status, 403)
        here = {"Authorization": "Bearer " + key, "Origin": "http://evil.example"}
        self.assertEqual(self.ask("/page/session", "POST", **here).status, 403)
        session = json.loads(self.ask("/page/session", "POST", Authorization="Bearer " + key).text)
        again = self.ask("/page/session", "POST", Authorization="Bearer " + key)
        self.assertEqual(again.status, 403)
        for bearer in (session["bearer"], "0123456789abcdef" * 2):
            self.assertEqual(self.rank(bearer)["tail"], ["the secret of rank 0"])
        self.assertNotIn("0123456789abcdef", ctrun.err)

    def test_the_name_that_ctrun_was_told_opens_the_page(self):
        hosts = self.tmp / "hosts"
        hosts.write_text("127.0.0.1 localhost store.cluster.example\n")
        mounted = ("unshare", "--mount", "sh", "-c")
        if self.run_program(*mounted, f"mount --bind {hosts} /etc/hosts").code != 0:
            self.skipTest("nothing can be mounted here")
        run = f'mount --bind {hosts} /etc/hosts && exec "$@"'
        ctrun = self.start(
            *mounted, run, "sh", testlib.program("ctrun"), "--print-url", "--nnodes", "1", "--nproc-per-node", "1",
            "--master-addr", "store.cluster.example", "--no-python", "sleep", "600",
        )  # fmt: skip
        url = re.search(r"http://(store\.cluster\.example):(\d+)/", ctrun.wait_for("live page:"))
        self.port = int(url.group(2))
        for name, code in ((url.group(1), 200), ("cluster.example", 403)):
            self.assertEqual(self.ask("/", **HTML, Host=f"{name}:{self.port}").status, code, name)

    def running(self, *args, out="<b>out</b>"):
        """A ctrun whose worker has written a line and runs."""
        worker = self.script("runs.sh", f"echo '{out}'; echo the word >&2; exec sleep 600\n")
        # The only worker of a machine would write to stdout itself.
        ctrun = self.start_ctrun("--print-url", "--nproc-per-node", "2", *args, "--no-python", "sh", worker)
        url = re.search(r"http://127\.0\.0\.1:(\d+)/\S*", ctrun.wait_for("live page:"))
        self.port = int(url.group(1))
        ctrun.wait_for("the word")
        return url.group(0)

    def lines(self, bearer=None):
        headers = {"Authorization": "Bearer " + bearer} if bearer else {}
        return self.ask("/page/ask/output/0/0", "POST", **headers)

    def test_the_last_lines_of_a_worker_that_runs_are_shown(self):
        self.running("--token-file", str(self.token))
        for wrong in (None, "x", "0" * 64):
            self.assertEqual(self.lines(wrong).status, 403, wrong)
        wait_until(lambda: self.rank()["worker"]["state"] == "running", "the worker is told of")
        token = self.token.read_text().strip()
        want = "stdout:\n<b>out</b>\nstderr:\nthe word\n"
        wait_until(
            lambda: json.loads(self.lines(token).text).get("text") == want, "both lines are there"
        )
        wait_until(lambda: self.rank()["worker"].get("rss_bytes", 0) > 0, "its memory is told")
        wait_until(lambda: (self.data()["points"][-1][8] or 0) > 0, "the curve has it")

    def test_a_click_shows_the_last_lines(self):
        if browser.find() is None:
            self.skipTest("no browser is installed (Debian's package chromium)")
        url = self.running("--token-file", str(self.token), out="<b>out</b>\u202e\u200b\U000e0041")
        page = browser.Browser(self.tmp / "profile")
        self.addCleanup(page.close)
        page.open(url)
        page.wait_for("state[0] === RUNNING", "the worker runs")
        page.wait_for("bearer && location.hash === ''", "the key")
        page.run("choose(0), showFacts(0)")
        page.wait_for("/stdout:\\n<b>out<.b>[?]{3}\\nstderr:\\nthe word/.test(document.getElementById('tail').textContent)", "the lines")
        self.assertEqual(page.run("document.getElementById('stack').hidden"), True)
        page.run("document.getElementById('ask-stack').click()")
        page.wait_for("/(is at .|no stack of rank 0)/.test(document.getElementById('stack').textContent)", "its stack")
        self.assertEqual(page.run("document.querySelectorAll('main b').length"), 0)
        self.assertEqual(page.console, [])

    def test_only_who_has_the_key_is_shown_a_stack(self):
        self.running("--token-file", str(self.token))
        for wrong in (None, "x", "0" * 64):
            headers = {"Authorization": "Bearer " + wrong} if wrong else {}
            self.assertEqual(self.ask("/page/ask/stack/0/0", "POST", **headers).status, 403, wrong)
        if browser.find() is None:
            self.skipTest("no browser is installed (Debian's package chromium)")
        page = browser.Browser(self.tmp / "profile")
        self.addCleanup(page.close)
        page.open(f"http://127.0.0.1:{self.port}/")
        page.wait_for("state[0] === RUNNING", "the worker runs")
        page.run("choose(0), showFacts(0)")
        page.wait_for("!document.getElementById('locked').hidden", "the words that say why")
        self.assertEqual(page.run("document.getElementById('ask-stack').hidden"), True)

    def test_a_link_shows_the_last_lines_in_a_browser(self):
        if browser.find() is None:
            self.skipTest("no browser is installed (Debian's package chromium)")
        _, line = self.lingering("--token-file", str(self.token))
        page = browser.Browser(self.tmp / "profile")
        self.addCleanup(page.close)
        page.open(re.search(r"http://\S+", line).group(0))
        page.wait_for(f"/^failed: /.test({VERDICT})", "the verdict")
        page.wait_for("bearer && location.hash === ''", "the key")
        page.run("choose(0), showFacts(0)")
        page.wait_for("/the secret of rank 0/.test(document.getElementById('tail').textContent)", "the lines")
        self.assertEqual(page.console, [])

    def ending(self, code):
        """A job that ends with this code when it may, without --linger, and its page's address."""
        go = self.tmp / f"go-{code}"
        script = f"while ! [ -e {go} ]; do sleep 0.1; done; exit {code}"
        ctrun = self.start_ctrun("--print-url", "--no-python", "sh", "-c", script)
        url = ctrun.wait_for("live page: ").split()[-1]
        self.port = int(re.search(r":(\d+)/", url).group(1))
        return ctrun, go, url

    def test_an_open_page_hears_how_the_job_ended(self):
        for code, outcome, words in ((0, "succeeded", r"succeeded"), (3, "failed", r"failed: rank 0 on .* code 3")):
            ctrun, go, _ = self.ending(code)
            stream, text = self.events(), b""
            while b"data: {" not in text:
                text += stream.recv(65536)
            self.assertNotIn(b"event: end", text)
            go.touch()
            while part := stream.recv(65536):
                text += part
            self.assertEqual(ctrun.wait().code, code)
            self.assertEqual(text.count(b"event: end\ndata: "), 1, text)
            # A browser may drop the last events of a stream that breaks off.
            self.assertEqual(text[-5:], b"0\r\n\r\n", "the stream is complete")
            last = text.rpartition(b"event: end\ndata: ")[2]
            end = json.loads(last.partition(b"\n")[0])
            self.assertEqual((end["outcome"], end["exit_code"]), (outcome, code))
            self.assertRegex(end["text"], words)
            self.assertNotIn(b"data: ", last)

    def test_an_open_page_shows_how_the_job_ended(self):
        if browser.find() is None:
            self.skipTest("no browser is installed (Debian's package chromium)")
        page = browser.Browser(self.tmp / "profile")
        self.addCleanup(page.close)
        for code, words in ((0, "^the job succeeded$"), (3, "^failed: rank 0 on .* code 3$")):
            ctrun, go, url = self.ending(code)
            page.open(url)
            page.wait_for("state[0] === RUNNING", "the worker runs")
            go.touch()
            self.assertEqual(ctrun.wait().code, code)
            page.wait_for(f"new RegExp({json.dumps(words)}).test({VERDICT})", words)
            page.wait_for("/has ended with the job/.test(document.getElementById('line').textContent)", "the line")

    def test_a_terminal_shows_the_address_once(self):
        terminal = Terminal(program("ctrun"), "--no-python", "true")
        self.addCleanup(terminal.close)
        text = terminal.read_all()
        self.assertEqual(len(re.findall(r"live page: http://127\.0\.0\.1:\d+/\s", text)), 1, text)
        self.assertNotIn("live page", self.ctrun("--no-python", "true").err)


class WithBrowser(Page):
    def setUp(self):
        super().setUp()
        if browser.find() is None:
            self.skipTest("no browser is installed (Debian's package chromium)")
        self.page = browser.Browser(self.tmp / "profile")
        self.addCleanup(self.page.close)
        self.url = f"http://127.0.0.1:{self.port}/"

    def see(self, verdict):
        self.page.open(self.url)
        self.page.wait_for(f"new RegExp({json.dumps(verdict)}).test({VERDICT})", verdict)

    def picture(self, name):
        if PICTURES:
            self.page.picture(pathlib.Path(PICTURES) / (name + ".png"))

    def assert_quiet(self):
        """No error on the console, nothing asked of anybody else."""
        # The store ends the stream of a viewer that is too slow for it, as on a loaded machine, and the page
        # asks again.
        slow = [line for line in self.page.console if line.endswith("/page/events")]
        self.assertEqual([line for line in self.page.console if line not in slow], [])
        strangers = [u for u in self.page.requests if not re.match(r"data:|about:|" + self.url, u)]
        self.assertEqual(strangers, [])


class InABrowser(WithBrowser):
    def test_a_healthy_job_by_keyboard(self):
        self.job(2, 4)
        self.see("^training, 8 of 8 workers, step 1,204, 312k samples/s$")
        self.picture("healthy")
        self.page.run("document.getElementById('grid').focus()")
        for key, code, rank in (("ArrowRight", 39, 0), ("ArrowRight", 39, 1), ("End", 35, 7), ("Home", 36, 0)):
            self.page.key(key, code)
            self.page.wait_for(f"/^rank {rank} on/.test(document.getElementById('chosen').textContent)", key)
        self.page.key("Enter", 13)
        self.page.wait_for("/1,204/.test(document.getElementById('facts-list').textContent)", "facts")
        self.page.scheme("dark")
        self.picture("healthy-dark")
        self.assert_quiet()

    def test_a_missing_node_is_named(self):
        self.addCleanup(FakeAgent(self.port, "gpu-0", 4, 2).close)
        self.see("^waiting for 1 of 2 nodes")
        words = "document.getElementById('missing-part').textContent"
        self.page.wait_for(f"/1 machine, not known by name/.test({words}) && /Here already: gpu-0/.test({words})", "who is missing")
        self.picture("missing")
        self.assert_quiet()

    def test_a_silent_rank_stands_out(self):
        (agent,) = self.job(1, 8)
        agent.workers[3].update(step=1200, age_ms=40000)
        agent.beat()
        self.see("^rank 3 on gpu-0 has said nothing for 40 s or more, 4 steps behind")
        self.picture("hang")
        self.assert_quiet()

    def test_a_failure_with_hostile_words(self):
        evil = "<img src=x onerror=alert(1)></script><b>\x1b]0;x\x07\u202e\u200b\U000e0041"
        agent = FakeAgent(self.port, evil[:60], 8, 1, run_id=evil[:60])
        self.addCleanup(agent.close)
        agent.start(2**50)
        for worker, number in zip(agent.workers, (1e308, -1e308, 0, -1, 1e-300, 5, 6, 7)):
            worker.update(loss=number, rate=number, step=int(min(abs(number), 2**50)))
        agent.beat()
        agent.fail(5, evil, evil + "\n")
        self.see("onerror")
        agent.stop()
        self.page.wait_for("/rank 5/.test(document.getElementById('story').textContent)", "the story")
        self.page.run("choose(5), showFacts(5)")
        self.page.run("document.getElementById('table-part').open = true")
        self.page.wait_for("/onerror/.test(document.getElementById('tail').textContent)", "the lines")
        self.assertEqual(self.page.run("document.querySelectorAll('img, main b, main script').length"), 0)
        # What would turn the text, or show nothing, is seen as what it is.
        self.assertNotRegex(self.page.run("document.body.textContent"), "[\u200b\u202e\U000e0041]")
        self.picture("failure")
        self.assert_quiet()

    def test_polling_where_events_fail(self):
        (agent,) = self.job(1, 8)
        self.page.block("*/page/events")
        self.see("^training, 8 of 8 workers, step 1,204")
        self.page.wait_for("/every 2 s/.test(document.getElementById('line').textContent)", "polling")
        for worker in agent.workers:
            worker["step"] = 1205
        agent.beat()
        self.page.wait_for(f"/step 1,205/.test({VERDICT})", "the next step")

    def test_the_keyboard_reaches_everything(self):
        (agent,) = self.job(1, 8)
        agent.workers[5].update(step=1200, age_ms=40000)
        agent.beat()
        self.see("^rank 5 on")
        seen = []
        for _ in range(6):
            self.page.key("Tab", 9)
            seen.append(self.page.run("document.activeElement.id || document.activeElement.textContent"))
        self.assertEqual(seen[:3], ["To the workers", "grid", "The same as a table"])
        self.assertEqual(self.page.run("document.querySelectorAll('h1[role], h2[role], h3[role]').length"), 0)
        self.page.run("document.getElementById('grid').focus()")
        self.page.key("n", 78)
        self.page.wait_for("/^rank 5 on/.test(document.getElementById('chosen').textContent)", "N")
        self.page.run("document.querySelector('#table-part summary').focus()")
        self.page.key("Enter", 13)
        self.page.wait_for("/0 to 4.*running/.test(document.getElementById('table').textContent)", "the table")
        # Enter leads to the facts of a worker, and Escape back to the grid.
        focus = "document.activeElement.id"
        self.page.run("document.getElementById('grid').focus()")
        self.page.key("Enter", 13)
        self.page.wait_for(focus + " === 'facts-head'", "the facts")
        self.page.key("Escape", 27)
        self.page.wait_for(focus + " === 'grid' && document.getElementById('facts').hidden", "the grid")
        self.page.key("Enter", 13)
        self.page.wait_for(focus + " === 'facts-head'", "the facts")
        self.page.run("document.getElementById('close-facts').click()")
        self.assertTrue(self.page.run("document.getElementById('facts').hidden"))
        unnamed = "[...document.querySelectorAll('canvas:not([aria-hidden])')].filter((c) => !c.getAttribute('aria-label')).length"
        self.assertEqual(self.page.run(unnamed), 0)

    def test_a_screen_reader_hears_of_verdicts_and_not_of_steps(self):
        (agent,) = self.job(1, 8)
        self.see("^training, 8 of 8 workers, step 1,204")
        spoken = "document.getElementById('spoken').textContent"
        self.page.wait_for(f"/^training, 8 of 8 workers/.test({spoken})", "the verdict is spoken")
        before = self.page.run(spoken)
        for worker in agent.workers:
            worker.update(step=1205, rate=299000)
        agent.beat()
        self.page.wait_for(f"/step 1,205, 299k/.test({VERDICT})", "the next step")
        self.assertEqual(self.page.run(spoken), before)
        agent.workers[3].update(age_ms=40000)
        agent.beat()
        self.page.wait_for(f"/^rank 3 on gpu-0 has said nothing/.test({spoken})", "another verdict")

    def test_texts_and_shapes_have_contrast(self):
        """WCAG 2: text has 4.5, shapes have 3 against the background."""
        self.job(1, 8)
        self.see("^training")
        for scheme in ("light", "dark"):
            self.page.scheme(scheme)
            ratios = self.page.run(CONTRAST)
            for name, ratio in ratios.items():
                least = 4.5 if name in ("front", "faint", "faint on panel", "front on panel", "bad") else 3
                self.assertGreaterEqual(ratio, least, (scheme, name))

    def test_an_update_of_ten_thousand_ranks_fits_a_frame(self):
        agents = self.job(40, 250)
        self.see("^training, 10,000 of 10,000 workers")
        for _ in range(5):
            updates = self.page.run("ctrunPage.updates")
            for agent in agents:
                for worker in agent.workers:
                    worker["step"] += 1 + (worker["rank"] % 7 == 0)
                agent.beat()
            self.page.wait_for(f"ctrunPage.updates > {updates}", "an update")
        self.picture("many")
        paint = self.page.run("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        # Every worker changes its look. The time of the processor, and the least of several, say
        # what the work takes whatever else runs on this machine.
        costs = []
        for n in range(8):
            self.page.run(EVERY_CELL % (n % 2 * 50))
            before = self.page.script_ms()
            self.page.run(UPDATE)
            costs.append(self.page.script_ms() - before)
        print(f"10,000 ranks: script {min(costs):.1f} to {max(costs):.1f} ms of the processor an update, "
              f"first paint after {paint:.0f} ms")
        self.assertGreater(min(costs), 0)
        self.assertLess(min(costs), 16)
        self.assert_quiet()


class WithoutHttp(testlib.Case):
    def test_nothing_is_kept_where_there_is_no_page(self):
        if os.environ["HAVE_HTTP"] == "1":
            self.skipTest("this build has HTTP")
        # A ctrun that waited would outlast the test.
        ended = self.ctrun("--linger", "86400", "--print-url", "--no-python", "true")
        self.assertEqual(ended.code, 0)
        self.assertIn("there is no live page", ended.err)


@unittest.skipUnless(PICTURES, "CT_PAGE_PICTURES names no folder for pictures")
class Pictures(WithBrowser):
    """The pictures of docs/pictures/."""

    def setUp(self):
        super().setUp()
        self.page.size(960, 640)

    def train(self, agents, seconds=15):
        """The job goes on for some seconds, so that there are curves."""
        for step in range(seconds * 2):
            for agent in agents:
                for worker in agent.workers:
                    moves = worker["state"] == "running" and worker["age_ms"] < 1000
                    worker["step"] += 7 * moves
                    worker["loss"] = 0.3 + 2 / (1 + 0.2 * step) + 0.03 * (step % 3)
                    worker["rate"] = 312000 + 4000 * (step % 5)
                    worker["phase"] = "collective" if (step + worker["rank"]) % 6 == 0 else "compute"
                agent.beat()
            time.sleep(0.5)

    def test_a_healthy_job_is_pictured(self):
        agents = self.job(2, 4)
        self.train(agents)
        self.see("^training")
        self.picture("page-healthy")

    def test_a_job_that_waits_is_pictured(self):
        self.addCleanup(FakeAgent(self.port, "gpu-0", 4, 2).close)
        self.see("^waiting for 1 of 2 nodes")
        self.picture("page-missing")

    def test_a_failure_is_pictured(self):
        agents = self.job(2, 4)
        self.train(agents)
        self.see("^training")
        line = "ValueError: the batch of rank 5 is empty"
        agents[1].fail(1, "process 1001 exited with code 3", line + "\n")
        self.page.wait_for(f"/rank 5/.test({VERDICT})", "the verdict")
        for agent in agents:
            agent.stop()
        self.page.run("choose(5), showFacts(5)")
        self.page.wait_for("/ValueError/.test(document.getElementById('tail').textContent)", "the lines")
        self.picture("page-failure")

    def test_a_hang_is_pictured(self):
        agents = self.job(2, 4, queries=True)
        self.train(agents)
        agents[0].workers[3].update(age_ms=40000, phase="collective")
        self.train(agents, 6)
        self.see("^rank 3")
        texts = ["stderr:\nepoch 3: step 1414, loss 0.985\n", "rank 3 is at train.py:88 in step, inside all_reduce\n"]
        helper = threading.Thread(target=lambda: [agents[0].answer(text) for text in texts])
        helper.start()
        self.page.run("choose(3), showFacts(3)")
        self.page.wait_for("/epoch 3/.test(document.getElementById('tail').textContent)", "its lines")
        self.page.run("document.getElementById('ask-stack').click()")
        self.page.wait_for("/train.py:88/.test(document.getElementById('stack').textContent)", "its stack")
        helper.join(DEADLINE)
        self.picture("page-hang")

    def test_ten_thousand_ranks_are_pictured(self):
        agents = self.job(40, 250)
        self.see("^training, 10,000 of 10,000 workers")
        for worker in agents[17].workers[40:90]:
            worker["step"] -= 5
        agents[23].workers[7]["age_ms"] = 60000
        for agent in agents:
            agent.beat()
        self.see("^rank")
        self.picture("page-10000-ranks")


if __name__ == "__main__":
    testlib.main()
