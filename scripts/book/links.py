#!/usr/bin/env python3
"""Checks that each link of a built book leads to a page, a file or a place in a page: links.py FOLDER."""

import pathlib
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlparse


class Page(HTMLParser):
    """The links of a page, and the places that links can lead to."""

    def __init__(self, path):
        super().__init__()
        self.links, self.places = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.places.add(attributes.get("id"))
        if tag in ("a", "img"):
            self.links.append(attributes.get("href") or attributes.get("src") or "")


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    pages = {path: Page(path) for path in folder.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            to = urlparse(link)
            if to.scheme or not link:
                continue
            target = (path.parent / unquote(to.path)).resolve() if to.path else path
            known = pages.get(target)
            if not target.exists() or (to.fragment and known and unquote(to.fragment) not in known.places):
                broken.append(f"{path.relative_to(folder)} links to {link}")
    print("\n".join(sorted(set(broken))))
    print(f"{sum(len(page.links) for page in pages.values())} links of {len(pages)} pages, {len(broken)} broken")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
