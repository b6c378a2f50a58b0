#!/usr/bin/env python3
"""Turns train.txt and val.txt into train.bin and val.bin: token ids as 16-bit numbers, with tok.json in the current folder."""
import array
import json

from bpe import STAND_IN, merged, words

END = "<|endoftext|>"


class Encoder:
    def __init__(self, tokens):
        self.ids = {text: i for i, text in enumerate(tokens["vocab"])}
        self.rank = {tuple(merge.split(" ")): i for i, merge in enumerate(tokens["merges"])}
        self.known = {}

    def word(self, text):
        if text not in self.known:
            symbols = [STAND_IN[byte] for byte in text.encode()]
            while len(symbols) > 1:
                best = min(zip(symbols, symbols[1:]), key=lambda pair: self.rank.get(pair, len(self.rank)))
                if best not in self.rank:
                    break
                symbols = merged(symbols, best)
            self.known[text] = [self.ids[s] for s in symbols]
        return self.known[text]

    def text(self, text):
        out = []
        for document in text.split(END):
            out.append(self.ids[END])
            for word in words(document.strip("\n")):
                out += self.word(word)
        return out


def main():
    with open("tok.json", encoding="utf-8") as file:
        encoder = Encoder(json.load(file))
    for name in ("train", "val"):
        with open(name + ".txt", encoding="utf-8") as file:
            text = file.read()
        ids = encoder.text(text)
        with open(name + ".bin", "wb") as file:
            array.array("H", ids).tofile(file)
        print(f"{name}: {len(text)} characters, {len(ids)} tokens, {len(text) / len(ids):.2f} characters each")


if __name__ == "__main__":
    main()
