#!/usr/bin/env python3
"""Learns a byte-level BPE vocabulary of 4096 tokens from train.txt and writes tok.json."""
import json
import re
from collections import Counter, defaultdict

VOCABULARY = 4096
LETTER = r"[^\W\d_]"
# The qwen2 pre-tokenizer, in the terms of Python's re.
WORD = re.compile(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|(?:[^\r\n\w]|_)?"
    + LETTER
    + r"+|\d| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def stand_ins():
    """byte -> the printable character that stands for it in a byte-level vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


STAND_IN = stand_ins()


def words(text):
    return WORD.findall(text)


def merged(symbols, pair):
    """Every occurrence of the pair, left to right, as one symbol."""
    out, i = [], 0
    while i < len(symbols):
        if tuple(symbols[i : i + 2]) == pair:
            out.append(pair[0] + pair[1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


class Learner:
    """Merges the commonest pair of neighbours again and again, updating only the words that hold it."""

    def __init__(self, counts):
        self.words = [[STAND_IN[byte] for byte in word.encode()] for word in counts]
        self.counts = list(counts.values())
        self.pairs, self.where = Counter(), defaultdict(set)
        for i in range(len(self.words)):
            self.add(i, +1)

    def add(self, i, sign):
        for pair in zip(self.words[i], self.words[i][1:]):
            self.pairs[pair] += sign * self.counts[i]
            if sign > 0:
                self.where[pair].add(i)

    def best(self):
        pair = max(self.pairs.items(), key=lambda item: (item[1], item[0]))[0]
        return pair if self.pairs[pair] >= 2 else None

    def merge(self, pair):
        for i in list(self.where[pair]):
            self.add(i, -1)
            self.words[i] = merged(self.words[i], pair)
            self.add(i, +1)
        self.pairs.pop(pair, None)
        self.where.pop(pair, None)


def main():
    counts = Counter()
    with open("train.txt", encoding="utf-8") as file:
        for document in file.read().split("<|endoftext|>"):
            counts.update(words(document))
    learner = Learner(counts)
    vocabulary, merges = sorted(STAND_IN.values(), key=ord), []
    seen = set(vocabulary)
    while len(vocabulary) < VOCABULARY - 2:
        pair = learner.best()
        if pair is None:
            break
        merges.append(" ".join(pair))
        if pair[0] + pair[1] not in seen:
            seen.add(pair[0] + pair[1])
            vocabulary.append(pair[0] + pair[1])
        learner.merge(pair)
    vocabulary += ["<|endoftext|>", "<|pad|>"]
    with open("tok.json", "w", encoding="utf-8") as file:
        json.dump({"vocab": vocabulary, "merges": merges}, file)
    print(f"{len(vocabulary)} tokens, {len(merges)} merges from {len(counts)} distinct words")


if __name__ == "__main__":
    main()
