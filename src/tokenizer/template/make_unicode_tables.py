#!/usr/bin/env python3
"""Writes unicode_tables.cpp: what Python's str methods say about every character, as sorted runs.

A run is (first, count, step). Case maps add a delta; characters that become several are listed apart.
usage: make_unicode_tables.py > unicode_tables.cpp
"""
import unicodedata

CHARACTERS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def runs(members):
    """Sorted (code, key) pairs as [first, count, step, key]: neighbours in the list with one key and one step, 1 or 2."""
    out = []
    for code, key in members:
        if out and out[-1][3] == key:
            first, count, step, _ = out[-1]
            gap = code - (first + (count - 1) * step)
            if gap in (1, 2) and (count == 1 or gap == step):
                out[-1][1:3] = [count + 1, gap]
                continue
        out.append([code, 1, 1, key])
    return out


def emit(name, kind, rows):
    print(f"const {kind} {name}[] = {{")
    line = "    "
    for row in rows:
        if len(line) + len(row) + 2 > 118:
            print(line)
            line = "    "
        line += row + ","
    print(line)
    print("};")
    print(f"const size_t {name}_size = sizeof({name}) / sizeof({name}[0]);\n")


def emit_set(name, test):
    rows = runs([(c, 0) for c in CHARACTERS if test(chr(c))])
    emit(name, "Run", [f"{{{a},{n},{s}}}" for a, n, s, _ in rows])


def emit_map(name, function):
    mapped = [(c, function(chr(c))) for c in CHARACTERS]
    mapped = [(c, s) for c, s in mapped if s != chr(c)]
    rows = runs([(c, ord(s) - c) for c, s in mapped if len(s) == 1])
    emit(name, "Shift", [f"{{{a},{n},{s},{d}}}" for a, n, s, d in rows])
    emit(name + "_long", "Expansion", [f"{{{c},{{{','.join(str(ord(x)) for x in s)}}}}}" for c, s in mapped if len(s) > 1])


def sigma(before_end):
    return ("a\u03a3" + before_end).lower()[1] == "\u03c3"


print(f"// Made by make_unicode_tables.py from Unicode {unicodedata.unidata_version}: do not edit.")
print("// clang-format off")
print('#include "tokenizer/template/unicode_tables.h"\n')
print("namespace moetier::jinja::tables {\n")
emit_set("alpha", str.isalpha)
emit_set("decimal", str.isdecimal)
emit_set("digit", str.isdigit)
emit_set("numeric", str.isnumeric)
emit_set("space", str.isspace)
emit_set("lower", str.islower)
emit_set("upper", str.isupper)
emit_set("title_only", lambda c: c.istitle() and not c.isupper())
emit_set("unprintable", lambda c: not c.isprintable())
emit_set("identifier_start_more", lambda c: c.isidentifier() and not c.isalpha() and c != "_")
emit_set("identifier_more", lambda c: ("a" + c).isidentifier() and not c.isalnum() and c != "_")
emit_set("not_identifier", lambda c: c.isalnum() and not ("a" + c).isidentifier())
# What a capital sigma looks at to find out whether it ends a word.
emit_set("cased", sigma)
emit_set("case_ignorable", lambda c: not sigma(c) and sigma(c + "a"))
emit_map("to_lower", str.lower)
emit_map("to_upper", str.upper)
emit_map("to_title", str.title)
emit_map("to_fold", str.casefold)
print("}  // namespace moetier::jinja::tables")
