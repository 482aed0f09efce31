#!/usr/bin/env python3
"""The report, in a real browser: on a phone and on a desktop, light and dark."""
import re
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

sys.dont_write_bytecode = True
TESTS = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(TESTS.parent), str(TESTS), str(TESTS / "lab")]
from browser import Browser
from histories import crash, herd, history, pause, several
from lab import literature, picture, report
from servers import suite
from servers.suite import equal, main, test

suite.LIMIT_S = 240  # chromium may start slowly
OPEN_ALL = "document.querySelectorAll('details').forEach(each => each.open = true)"

# The colour of each piece of text, and the colour that everything painted below it adds up to.
CONTRASTS = """(() => {
  const context = Object.assign(document.createElement('canvas'), {width: 1, height: 1}).getContext('2d',
    {willReadFrequently: true});
  const paint = colour => { context.fillStyle = colour; context.fillRect(0, 0, 1, 1) };
  const pixel = () => [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * x + .7152 * y + .0722 * z;
  };
  const fill = element => {
    const style = getComputedStyle(element);
    if (!(element instanceof SVGElement)) return [style.backgroundColor, 1];
    return element.matches('rect, circle') && !style.fill.startsWith('url') ? [style.fill, +style.fillOpacity] : ['none', 1];
  };
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, element = node.parentElement;
    if (!node.data.trim() || element.closest('.hidden, title, style')) continue;
    element.scrollIntoView({block: 'center', inline: 'center', behavior: 'instant'});
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getClientRects()[0];
    if (!box) continue;
    const below = document.elementsFromPoint(box.x + Math.min(box.width / 2, 8), box.y + box.height / 2).reverse();
    paint('white');
    for (const each of below) {
      const [colour, opacity] = fill(each);
      if (colour === 'none') continue;
      context.globalAlpha = opacity;
      paint(colour);
      context.globalAlpha = 1;
    }
    const back = luminance(pixel());
    paint(element instanceof SVGElement ? getComputedStyle(element).fill : getComputedStyle(element).color);
    const front = luminance(pixel());
    found.push([(Math.max(front, back) + .05) / (Math.min(front, back) + .05), node.data.trim().slice(0, 40)]);
  }
  return found;
})()"""

# Pictures that cannot be seen, or are cut off at the side.
UNSEEN = """[...document.querySelectorAll('svg')].filter(svg => {
  const box = svg.getBoundingClientRect(), nested = svg.parentElement.closest('svg'), scrolls = svg.closest('.matrix');
  return !nested && (!box.width || !box.height || !svg.checkVisibility() || !scrolls && (box.left < 0 || box.right > innerWidth));
}).map(svg => svg.outerHTML.slice(0, 80))"""

# Labels of one picture that lie on each other, or beyond the page.
OVERLAPS = """[...document.querySelectorAll('figure svg[role=img]')].flatMap(svg => {
  const texts = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
  const outside = texts.filter(([, box]) => box.left < 0 || box.right > innerWidth).map(([word]) => word + ' is cut off');
  return outside.concat(texts.flatMap(([word, one], index) => texts.slice(index + 1).filter(([, two]) =>
    one.left < two.right && two.left < one.right && one.top + 3 < two.bottom && two.top + 3 < one.bottom
  ).map(([other]) => word + ' / ' + other)));
})"""


def made(folder):
    path = Path(folder) / "report.html"
    path.write_text(report.page(*several()), encoding="utf-8")
    return path


@test("390 light", "390 dark", "1200 light", "1200 dark")
def it_is_readable(how):
    width, colours = how.split()
    with tempfile.TemporaryDirectory(prefix="holdfast-report-") as folder, Browser() as browser:
        page = browser.open(made(folder), width=int(width), dark=colours == "dark")
        page.evaluate(OPEN_ALL)
        equal(page.evaluate("innerWidth"), int(width))
        equal(page.evaluate("document.documentElement.scrollWidth"), int(width))
        background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        equal(max(map(int, re.findall(r"\d+", background))) < 128, colours == "dark")
        contrasts = page.evaluate(CONTRASTS)
        assert len(contrasts) > 100, f"only {len(contrasts)} texts"
        equal([each for each in contrasts if each[0] < 4.5], [])
        equal(page.evaluate(UNSEEN), [])
        equal(page.evaluate(OVERLAPS), [])
        equal(page.complaints, [])
        equal(page.requests, [f"file://{folder}/report.html"])


@test
def a_sign_of_the_matrix_leads_to_the_picture_and_opens_it():
    with tempfile.TemporaryDirectory(prefix="holdfast-report-") as folder, Browser() as browser:
        page = browser.open(made(folder))
        links = page.evaluate("[...document.querySelectorAll('a')].map(each => each.getAttribute('href'))")
        equal([link for link in links if not page.evaluate(f"document.querySelectorAll('[id=\"{link[1:]}\"]').length == 1")], [])
        find = "document.querySelector('#setnx-expire-pause')"
        equal(page.evaluate(f"{find}.checkVisibility()"), False)
        page.evaluate("document.querySelector('td a[href=\"#setnx-expire-pause\"]').click()")
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        equal(page.evaluate(f"{find}.checkVisibility() && {find}.getBoundingClientRect().top < innerHeight"), True)


@test
def it_needs_no_script_and_nothing_from_elsewhere():
    text = report.page(*several())
    equal(re.findall(r"<script|<link|<img|<iframe|\bon\w+=|@import|url\((?!#)|(?:src|href)=\"(?!#)", text), [])


@test
def what_people_wrote_is_text_and_not_markup():
    text = report.page(*several())
    assert "Eviction &amp; &lt;other&gt; accidents" in text and "<other>" not in text
    assert "1 &lt; 2 &amp; so on" in text


@test
def the_story_shows_the_flaw_that_the_next_protocol_mends():
    """setnx also stalls in the first scenario, but that is not why it was replaced."""
    contents, histories = several()
    contents["scenarios"].insert(0, contents["scenarios"][0] | {"name": "first"})
    histories.append(crash("setnx", False) | {"scenario": "first"})
    text = report.page(contents, histories)
    story = text[text.index('id="about-setnx"'):text.index('id="about-setnx-expire"')]
    assert 'id="story-setnx-crash-holding"' in story and 'id="story-setnx-first"' not in story
    assert 'Replaced by <a href="#about-setnx-expire">' in story


@test
def a_cell_that_was_repeated_has_its_count():
    contents, histories = several()
    histories += [crash("setnx", False)] * 8 + [crash("setnx", True)]
    text = report.page(contents, histories)
    assert "9 of 10 times" in text


@test
def what_differs_from_the_literature_is_said():
    contents, _ = several()
    equal(literature.expected("setnx", "crash-holding", "redis").verdict, "stalls")
    assert "leads one to expect" not in report.page(contents, [crash("setnx", False)])
    assert "leads one to expect “stalls”" in report.page(contents, [crash("setnx", True)])


@test
def a_picture_is_a_file_of_its_own():
    for each in (pause("holdfast@redis", True), crash("setnx", False), herd("setnx", 101.5), history("setnx", "nothing", "A", [])):
        text = picture.standalone(each, "A title < a sentence", "A & B")
        names = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
        assert not names & {"script", "image", "use", "foreignObject"}, names
        assert "A title &lt; a sentence" in text and "A &amp; B" in text and each["verdict"].upper() in text


if __name__ == "__main__":
    main()
