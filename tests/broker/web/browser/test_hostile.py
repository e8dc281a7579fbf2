"""Messages of somebody who wants the page to run what they hold: it is shown, and nothing of it happens."""

import json
import random

import pytest

from broker_harness import service_of
from store_writer import StoreWriter
from web_questions import serving_page

FIRED = "window.fired"
SET = f"{FIRED}=1"
ATTACKS = {
    "script": f"<script>{SET}</script>",
    "closing": f"</pre></bdi></script></style><script>{SET}</script><img src=x onerror={SET}>",
    "attribute": f'" onmouseover="{SET}" onfocus=\'{SET}\' autofocus x="',
    "url": f"javascript:{SET}",
    "svg": f"<svg onload={SET}><animate onbegin={SET}>",
    "frame": "<iframe src='javascript:parent.fired=1'></iframe><meta http-equiv=refresh content='0;url=//evil'>",
    "template": "{{constructor.constructor('fired=1')()}}${fired=1}",
    "entity": "&lt;script&gt;fired=1&lt;/script&gt;&#x3c;img src=x onerror=fired=1&#x3e;",
    "right to left": "safe\u202efdp.exe\u2066hidden\u2069\u200b\ufeff",
    "style": "<style>*{display:none}</style><link rel=stylesheet href=//evil.example/x.css>",
    "dialog": "<img src=x onerror=alert(1)><body onload=confirm(1)>",
}
REST = [name for name in ATTACKS if name not in ("closing", "right to left")]
TOPIC = "<img src=x onerror=fired=1>\u202e"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    writer = StoreWriter(tmp_path_factory.mktemp("hostile") / "store", segment_size=16 << 20)
    for name, attack in ATTACKS.items():
        # A blank would part one key into several.
        key = attack.replace(" ", "\u00a0")
        properties = {attack: attack, "name": name}
        writer.append(TOPIC, attack.encode(), keys=key, unique_key=f"U-{attack}", tags=attack, properties=properties)
    writer.close()
    return writer.root


@pytest.fixture
def browser(one_browser, hostile):
    from storage.store.message_store import MessageStore

    with serving_page([service_of(MessageStore.open(hostile))]) as one_browser.server:
        one_browser.complaints()
        yield one_browser
        one_browser.driver.get("about:blank")


def assert_nothing_happened(browser) -> None:
    assert browser.run(f"return {FIRED}") is None
    # What an attack would have made: elements that the page never makes, and handlers in attributes.
    made = "main :is(script, style, iframe, img, animate, link, meta, object, embed)"
    assert not browser.all(made)
    assert browser.run(
        "return [...document.querySelectorAll('*')].flatMap((each) => [...each.attributes])"
        ".every((one) => !one.name.startsWith('on'))"
    )
    assert browser.run(
        "return [...document.querySelectorAll('a[href]')]"
        ".every((each) => new URL(each.href).origin === location.origin)"
    )
    # Neither was anything tried that the policy had to forbid.
    assert browser.complaints() == []


@pytest.mark.parametrize(
    "name", ["closing", "right to left", *(pytest.param(each, marks=pytest.mark.soak) for each in REST)]
)
def test_a_hostile_message_is_shown_and_not_run(browser, name) -> None:
    attack = ATTACKS[name]
    browser.open("find", text=attack.replace(" ", "\u00a0"))
    browser.see(".messages tbody tr")
    assert_nothing_happened(browser)
    browser.click(".messages a.open")
    body = browser.see(".body-text pre")
    if name == "right to left":
        assert "U+202E" in body.text
    else:
        assert browser.run("return document.querySelector('.body-text pre').textContent") == attack
    browser.keep(f"hostile-{name}")
    browser.see(".life li")
    browser.run(
        "document.querySelectorAll('main *')"
        ".forEach((each) => each.dispatchEvent(new MouseEvent('mouseover', {bubbles: true})))"
    )
    assert_nothing_happened(browser)


FRAGMENTS = (
    "<", ">", "\"", "'", "`", "&", "</", "/>", "<!--", "]]>", "\\", "${", "{{", "}}", "<script>", "</script>",
    "<style>", "<svg/onload=", "<img src=//evil.example/x onerror=", "javascript:", "data:text/html,", "fired=1",
    "alert(1)", " onclick=", "style=background:url(//evil)", "\u202e", "\u2066", "\u2069", "\u200d", "\ufeff",
    "\u2028", "\x00", "\x1b[31m", "e\u0301" * 40, "\U0001f469\u200d\U0001f4bb", "消息", "%3Cscript%3E", "&#60;", "..",
    "//", "a" * 300, "<iframe srcdoc=", "<base href=//evil>", "<meta http-equiv=refresh content=0;url=//evil>",
    "<link rel=preload as=script href=//evil>", "<form action=//evil>", "<object data=//evil>",
    "<math><mi xlink:href=javascript:fired=1>",
)  # fmt: skip
DRAWN = 3
"""Hostile stores for the browser; each is of another seed. `make test` has the first, `make soak` all."""


def drawn_text(rng: random.Random, most: int) -> str:
    return "".join(rng.choices(FRAGMENTS, k=rng.randrange(1, most)))


def drawn_store(root, seed):
    """A store each of whose texts somebody chose who wants the page to run it."""
    rng = random.Random(seed)
    writer = StoreWriter(root / str(seed), segment_size=16 << 20)
    topics = [drawn_text(rng, 4).replace("/", "_").replace("\0", "0")[:80] + str(number) for number in range(3)]
    for number in range(12):
        bare = {ord(each): "_" for each in "\x01\x02 \0"}
        keys, tag = (drawn_text(rng, 8).translate(bare) for _ in range(2))
        properties = {drawn_text(rng, 5).translate(bare): drawn_text(rng, 9).translate(bare), "number": str(number)}
        size = 4000 if number == 5 else 20
        body = drawn_text(rng, size)
        body = json.dumps({drawn_text(rng, 3): body}) if number % 3 else body
        named = {"keys": keys[:2000], "tags": tag[:2000]}
        named["unique_key"] = f"U{number}{drawn_text(rng, 3).translate(bare)}"[:200]
        data = body.encode("utf-8", "surrogatepass")
        writer.append(rng.choice(topics), data, properties=properties, **named)
    waits = {"REAL_TOPIC": topics[0], "TIMER_OUT_MS": str(writer.last_store_timestamp + 3_600_000)}
    writer.append("rmq_sys_wheel_timer", properties=waits, keys="waits", tags=drawn_text(rng, 6))
    writer.close()
    return writer.root


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, DRAWN))])
def test_whatever_a_store_says_no_view_runs_or_fetches_it(one_browser, tmp_path, seed) -> None:
    from storage.store.message_store import MessageStore

    store = MessageStore.open(drawn_store(tmp_path, seed))
    topics = [each for each in store.queues.topics() if not each.startswith("rmq_sys")]
    assert topics
    with serving_page([service_of(store)]) as one_browser.server:
        one_browser.complaints()
        plain = ("", "groups", "dead-letters", "pending", "space", "health")
        views: list[tuple[str, dict[str, str]]] = [(view, {}) for view in plain]
        views += [("topic", {"topic": topic}) for topic in topics]
        views += [("search", {"contains": "<"}), ("find", {"text": "waits"})]
        for view, parameters in views:
            one_browser.open(view, **parameters)
            one_browser.see("main *")
            one_browser.until(lambda: not one_browser.all("main [aria-busy=true]"))
            assert_nothing_happened(one_browser)
        for topic in topics:
            one_browser.open("topic", topic=topic)
            one_browser.click(".messages a.open")
            one_browser.see(".body-panel")
            one_browser.see(".life li")
            assert_nothing_happened(one_browser)
        one_browser.driver.get("about:blank")


def test_no_script_of_anybody_runs_even_if_it_were_in_the_page(browser) -> None:
    browser.open("")
    browser.see(".topics tbody tr")
    browser.run(
        "const bad = document.createElement('script'); "
        "try { bad.textContent = 'window.fired = 1'; document.body.append(bad); } catch {}"
        "try { setTimeout('window.fired = 1'); } catch {}"
        "try { document.body.innerHTML += '<img src=x onerror=fired=1>'; } catch {}"
    )
    assert browser.run(f"return {FIRED}") is None
    said = "Content Security Policy", "TrustedHTML", "TrustedScript"
    assert any(each in line for line in browser.complaints() for each in said)
