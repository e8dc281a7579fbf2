"""The page in a real browser, over the recorded store: finding, browsing, health, the keyboard, the colours."""

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from selenium.webdriver.common.keys import Keys

from broker.service.denials import Want
from broker_harness import service_of
from golden_store import G1, GOLDEN, unpack
from storage.store.message_store import MessageStore
from web_browser import Browser
from web_questions import serving_page

PRODUCED = [line.split("\t") for line in (G1 / "produced.tsv").read_text("utf-8").splitlines() if line]
PLAIN = PRODUCED[0]
UNIQUE_KEY, OFFSET_ID = PLAIN[2], PLAIN[3]


def test_the_first_view_lists_the_topics_with_their_messages(browser: Browser) -> None:
    browser.open("")
    row = browser.until(
        lambda: [
            each.text for each in browser.all(".topics tbody tr") if "TopicTest" in each.text and "52" in each.text
        ]
    )
    assert re.search(r"TopicTest 4 52 2026-11-2\d", row[0].replace("\n", " "))
    assert browser.driver.title == "Topics · RocketLens"
    assert "broker-a · DefaultCluster" in browser.see("#store", "RocketLens").text
    browser.keep("topics")


def test_a_message_is_found_by_its_key_and_by_both_its_ids(browser: Browser) -> None:
    browser.open("")
    for text, by in (("OrderID188", "key"), (UNIQUE_KEY, "unique key"), (OFFSET_ID, "offset message id")):
        browser.find(text)
        browser.see(".messages tbody tr", f"by {by}")
    line = browser.see(".messages tbody tr", "Hello world")
    assert "TopicTest" in line.text
    # The first line has the focus: Enter opens it.
    browser.until(lambda: "open" in (browser.driver.switch_to.active_element.get_attribute("class") or ""))
    browser.press(Keys.ENTER)
    assert "Hello world" in browser.see(".body-text pre").text
    facts = browser.see(".facts").text
    for told in ("TopicTest", "OrderID188", "TagA", UNIQUE_KEY, OFFSET_ID):
        assert told in facts
    assert browser.place == "/message?offset=0"
    browser.see(".life li", "delivered")
    browser.keep("message")


def test_a_topic_is_browsed_by_queue_and_goes_on_by_cursor(browser: Browser) -> None:
    browser.open("topic", topic="TopicTest", order="oldest")
    browser.see(".list .end", "50 messages shown; there may be more.")
    browser.click("button.more")
    browser.see(".list .end", "52 messages, all there are.")
    browser.see(".histogram + details table", "CG_TAG")
    browser.keep("topic")
    browser.click("details a", "Queue 2")
    browser.see(".list .end", "13 messages, all there are.")
    assert set(browser.texts(".messages td.queue")) == {"2"}
    assert parse_qs(urlsplit(browser.place).query)["queueId"] == ["2"]
    assert browser.texts(".messages td.offset") == [str(number) for number in range(12, -1, -1)]


def test_a_bar_of_the_histogram_takes_its_time_by_mouse_and_by_keyboard(browser: Browser) -> None:
    browser.open("topic", topic="TopicTest")
    browser.see(".histogram .said", "52 messages")
    bars = browser.until(lambda: browser.all(".histogram rect.target"))
    browser.run("document.querySelector('.histogram svg').focus()")
    browser.press(Keys.ARROW_RIGHT, Keys.ENTER)
    browser.see(".list .end", "1 message, all there are.")
    whole = parse_qs(urlsplit(browser.place).query)
    assert whole["begin"] == ["1795243505450"]
    browser.click("button", "All times")
    browser.see(".list .end", "50 messages shown")
    browser.until(lambda: len(browser.all(".histogram rect.target")) == len(bars))
    filled = [
        bar
        for bar, drawn in zip(browser.all(".histogram rect.target"), browser.all(".histogram rect.bar"), strict=True)
        if float(drawn.get_attribute("height") or 0)
    ]
    filled[-1].click()
    browser.until(lambda: "begin=1795243506320" in browser.place)
    browser.see(".list .end", "1 message, all there are.")


def test_a_filter_tells_how_many_pass_and_lists_them_or_what_is_wrong_with_it(browser: Browser) -> None:
    browser.open("topic", topic="TopicTest")
    browser.click(".filters select option[value=sql]")
    browser.see(".filters .wide").send_keys("a >")
    browser.click("button", "How many pass?")
    assert "^" in browser.see(".notice.error", "a >").text
    assert "status of 400" in "".join(browser.complaints())
    browser.see(".filters .wide").send_keys(" 10 AND a <= 30 AND region = 'hz'")
    browser.click("button", "How many pass?")
    browser.see(".preview", "10 of 52 messages (19 %) pass.")
    browser.keep("filter")
    browser.see(".filters .wide").send_keys(Keys.ENTER)
    browser.see(".list .end", "10 messages, all there are.")
    assert "sql=a" in browser.place


def test_dead_letters_and_light_topics_are_listed_and_lead_to_their_messages(lone: Browser, tmp_path: Path) -> None:
    root = unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-rocksdb-selective")
    with serving_page([service_of(MessageStore.open(root))]) as lone.server:
        lone.open("topics", system=1)
        lone.click("main .bar a", "light topics by their parent")
        assert lone.see("main tbody tr", "LightParent").text.split()[:2] == ["LightParent", "3"]
        lone.see(".end", "3 light topics of 1 parent.")
        lone.press("l")
        row = lone.see("main tbody tr", "CG_FAILS_selective")
        assert re.search(r"CG_FAILS_selective 1 20\d\d-", row.text.replace("\n", " "))
        lone.click("main a.open", "CG_FAILS_selective")
        lone.see("h1", "%DLQ%CG_FAILS_selective")
        lone.see(".list .end", "1 message")


def test_health_is_a_picture_with_findings_over_offsets_and_over_time(browser: Browser) -> None:
    browser.open("health")
    browser.see(".chip.good", "nothing is wrong")
    assert browser.see(".lanes svg").get_attribute("aria-label") == "Log: 100 %; Queues: 100 %; Index: 100 %"
    assert "156,014" in browser.see(".axis").text
    browser.keep("health")
    browser.click(".picture button", "over time")
    assert "06:45:45" in browser.see(".axis").text


def test_a_body_that_is_cut_says_so_is_saved_whole_and_shown_further(browser: Browser) -> None:
    browser.open("message", offset=3568)
    browser.see(".body-panel .row", "The first 66 kB of 200 kB are shown.")
    browser.run(
        "URL.createObjectURL = (blob) => { window.savedBytes = blob.size; return '#'; };"
        "HTMLAnchorElement.prototype.click = function () { window.savedAs = this.download; };"
    )
    browser.click(".body-panel button", "Download")
    browser.until(lambda: browser.run("return [window.savedAs, window.savedBytes]") == ["message-3568.txt", 200_000])
    browser.click(".body-panel button", "Show up to 4.2 MB")
    browser.until(lambda: len(browser.see(".body-text pre").text) == 200_000)


def test_the_keyboard_alone_is_enough(browser: Browser) -> None:
    browser.open("")
    browser.see(".topics a.open", "TopicTest")
    browser.press("?")
    browser.see("dialog.help", "next and previous line")
    browser.keep("help")
    browser.press(Keys.ESCAPE)
    browser.until(lambda: not browser.all("dialog[open]"))
    browser.press("/")
    assert browser.driver.switch_to.active_element.get_attribute("id") == "text"
    browser.press("hotkey", Keys.ENTER)
    browser.see(".list .end", "40 messages")
    browser.press("j")
    browser.press("j")
    browser.press("k")
    second = browser.all(".messages a.open")[1]
    assert browser.driver.switch_to.active_element == second
    browser.press(Keys.ENTER)
    browser.see(".body-text pre", "hot 38")
    browser.press(Keys.ESCAPE)
    browser.see(".list .end", "40 messages")
    # Back is where it was left.
    assert browser.driver.switch_to.active_element == browser.all(".messages a.open")[1]
    browser.press("h")
    browser.see("h1", "Health")
    browser.see(".picture")
    browser.press("t")
    browser.see("h1", "Topics")
    browser.see(".topics tbody tr", "52")
    for _ in range(4):  # and back never leads out of the page
        browser.press(Keys.ESCAPE)
    browser.see(".topics tbody tr", "TopicTest")
    browser.until(lambda: browser.place == "/")


def test_colours_follow_the_system_until_others_are_chosen(browser: Browser) -> None:
    def ground() -> str:
        return str(browser.run("return getComputedStyle(document.documentElement).backgroundColor"))

    def system(scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    browser.open("message", offset=0)
    browser.see(".life li")
    light = ground()
    system("dark")
    dark = ground()
    assert dark != light
    browser.keep("dark")
    browser.click("#theme")  # dark, whatever the system says
    system("light")
    assert ground() == dark
    browser.driver.refresh()
    browser.see(".life li")
    assert ground() == dark
    browser.press("d")
    assert ground() == light
    browser.press("d")
    assert browser.run("return localStorage.getItem('theme')") is None


def test_the_first_view_says_which_account_was_refused_and_the_line_to_add(
    one_browser: Browser, g1_store: Path
) -> None:
    service = service_of(MessageStore.open(g1_store))
    service.denials.note(Want("reader-key", "SUB of topic <b>orders", "topicPerms: - <b>orders=SUB"), 3)
    with serving_page([service]) as one_browser.server:
        one_browser.open("")
        one_browser.click("details.notice summary", "Clients were refused by --acl")
        said = one_browser.see("details.notice li", "reader-key").text
    assert said.startswith(
        "account reader-key lacks SUB of topic <b>orders; add to plain_acl.yml: topicPerms: - <b>orders=SUB (3 requests"
    )
