#!/usr/bin/env python3
"""Cleans books' plain-text editions and writes train.txt and val.txt: prep.py FOLDER

FOLDER holds one plain-text file per book. Headers, licences and illustrations marks are cut off, lines of a paragraph joined, quotes
and dashes written in ASCII. Of each book, the paragraphs from 90 % to 93 % are for validation, the rest for training.
"""
import pathlib
import re
import sys

PLAIN = {
    "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2014": "--", "\u2013": "-", "\u2026": "...",
    "\ufeff": "", "_": "", "\u00a0": " ",
}  # fmt: skip
START = re.compile(r"\*\*\* ?START OF (THE|THIS) PROJECT GUTENBERG.*?\*\*\*", re.S)
END = re.compile(r"\*\*\* ?END OF (THE|THIS) PROJECT GUTENBERG|End of (the )?Project Gutenberg")
NOT_THE_BOOK = ("Gutenberg", "www.", "Transcriber")
SHORT_LINE = 45  # characters: a paragraph of short lines is verse, and keeps them


def read(path):
    raw = path.read_bytes()
    for encoding in ("utf-8-sig", "cp1252", "latin-1"):
        try:
            return raw.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError:
            continue
    raise ValueError(f"{path}: no known encoding")


def joined(paragraph):
    lines = [line.strip() for line in paragraph.split("\n") if line.strip()]
    if len(lines) > 1 and all(len(line) < SHORT_LINE for line in lines):
        return "\n".join(lines)
    return re.sub(r"\s+", " ", " ".join(lines))


def paragraphs(text):
    if match := START.search(text):
        text = text[match.end() :]
    if match := END.search(text):
        text = text[: match.start()]
    for fancy, plain in PLAIN.items():
        text = text.replace(fancy, plain)
    text = re.sub(r"\[Illustration[^\]]*\]", "", text)
    out = [joined(p) for p in re.split(r"\n\s*\n", text) if p.strip()]
    first = next((i for i, p in enumerate(out) if len(p) > 300), 0)  # front matter ends at the first long paragraph
    return [p for p in out[first:] if not any(word in p for word in NOT_THE_BOOK)]


def main():
    train, val = [], []
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.txt")):
        book = paragraphs(read(path))
        a, b = int(len(book) * 0.90), int(len(book) * 0.93)
        val.append("\n\n".join(book[a:b]))
        train += ["\n\n".join(book[:a]), "\n\n".join(book[b:])]
        print(path.name, len(book), "paragraphs")
    for name, parts in (("train.txt", train), ("val.txt", val)):
        pathlib.Path(name).write_text("\n<|endoftext|>\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
