#!/usr/bin/env python3
"""Compares Moetier's chat templates with jinja2's, set up as Hugging Face's transformers sets it up.

  compare-templates.py update                      writes what the tests expect into tests/data/template
  compare-templates.py compare MOETIER [options]   renders with jinja2 and with `MOETIER template`, and shows what differs

compare takes the tests' cases and conversations, and with --random N also N made-up templates (--seed S).
Needs python3-jinja2 (the system's: /usr/bin/python3). Templates of others are read from ../shared/templates, or --shared DIR.
"""
import argparse
import datetime
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data" / "template"
FIXED_TIME = 1700000000  # what strftime_now shows in the tests, in UTC


class GenerationBlock(Extension):
    """{% generation %}: marks what the model wrote; its body is rendered as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("render"), [], [], body).set_lineno(line)

    def render(self, caller):
        return caller()


def make_environment(now=None):
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, loopcontrols]
    )

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(format):
        at = datetime.datetime.fromtimestamp(now) if now else datetime.datetime.now()
        return at.strftime(format)

    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def render(environment, template, variables):
    """{"expected": text}, or {"error": kind} with the message of raise_exception."""
    try:
        text = environment.from_string(template).render(**variables)
        text.encode()
        return {"expected": text}
    except jinja2.exceptions.TemplateError as error:
        if type(error) is jinja2.exceptions.TemplateError:
            return {"error": "TemplateError", "message": str(error)}
        return {"error": type(error).__name__}
    except Exception as error:  # whatever Python raises is what the interpreter must refuse
        return {"error": type(error).__name__}


def fnv(data):
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def summary(outcome):
    """An outcome in a few bytes: hash and length of the text, or the error."""
    if "expected" in outcome:
        data = outcome["expected"].encode()
        return f"{fnv(data):016x} {len(data)}"
    return "! " + outcome["error"] + (": " + outcome["message"] if "message" in outcome else "")


def read_template(path):
    return path.read_bytes().decode()


def lines_of(items):
    return "[\n" + ",\n".join(json.dumps(item, ensure_ascii=False) for item in items) + "\n]"


def update(arguments):
    os.environ["TZ"] = "UTC"
    time.tzset()
    environment = make_environment(FIXED_TIME)
    cases = json.loads((DATA / "cases.json").read_text())
    for case in cases["cases"]:
        variables = {**cases["variables"], **case.get("variables", {})}
        for key in ("expected", "error", "message"):
            case.pop(key, None)
        case.update(render(environment, case["template"], variables))
    text = '{"variables": ' + json.dumps(cases["variables"], ensure_ascii=False)
    (DATA / "cases.json").write_text(text + ',\n"cases": ' + lines_of(cases["cases"]) + "}\n")

    conversations = json.loads((DATA / "conversations.json").read_text())
    own = {}
    for path in sorted(DATA.glob("*.jinja")):
        template = read_template(path)
        own[path.name] = [render(environment, template, c["variables"]) for c in conversations]
    body = ",\n".join(f"{json.dumps(name)}: {lines_of(outcomes)}" for name, outcomes in own.items())
    (DATA / "own.json").write_text("{" + body + "}\n")

    shared = {}
    for path in sorted(arguments.shared.glob("*.jinja")):
        template = read_template(path)
        results = [summary(render(environment, template, c["variables"])) for c in conversations]
        shared[path.name] = {"source": f"{fnv(path.read_bytes()):016x}", "results": results}
    if shared:
        body = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry, ensure_ascii=False)}" for name, entry in shared.items())
        (DATA / "shared.json").write_text("{" + body + "}\n")
    print(f"{len(cases['cases'])} cases, {len(conversations)} conversations, {len(own)} own and {len(shared)} shared templates")


class Moetier:
    """`moetier template`, one process per rendering."""

    def __init__(self, binary):
        self.binary = binary
        self.directory = tempfile.TemporaryDirectory()

    def render(self, template, variables):
        source = Path(self.directory.name) / "template.jinja"
        messages = Path(self.directory.name) / "messages.json"
        source.write_bytes(template.encode())
        messages.write_text(json.dumps(variables))
        command = [self.binary, "template", "-f", str(source), "--messages", str(messages)]
        done = subprocess.run(command, capture_output=True, timeout=120)
        if done.returncode == 0:
            return {"expected": done.stdout.decode()}
        if done.returncode == 1:
            return {"error": done.stderr.decode().strip()}
        return {"crash": f"exit code {done.returncode}: {done.stderr.decode(errors='replace')}"}


def agree(reference, ours):
    if "expected" in reference:
        return reference["expected"] == ours.get("expected")
    return "error" in ours and reference.get("message", "") in ours["error"]


class Inventor:
    """Makes up templates: expressions of every kind, and statements amid odd white space."""

    FILTERS = (
        "abs attr batch capitalize center count default dictsort escape filesizeformat first float forceescape format "
        "groupby indent int items join last length list lower map max min reject rejectattr replace reverse round safe select "
        "selectattr slice sort string striptags sum title tojson trim truncate unique upper urlencode wordcount wordwrap xmlattr"
    ).split()
    TESTS = (
        "odd even divisibleby defined undefined none boolean false true integer float lower upper string mapping number "
        "sequence iterable callable sameas escaped in eq ne gt ge lt le filter test"
    ).split()
    METHODS = (
        "capitalize casefold center count endswith expandtabs find index isalnum isalpha isascii isdecimal isdigit "
        "isidentifier islower isnumeric isprintable isspace istitle isupper ljust lower lstrip partition removeprefix "
        "removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip swapcase title "
        "upper zfill"
    ).split()
    CHARACTERS = "aAbBzZ019 _-.,:!?\"'<>&%{}[]\t\n/\\\u00e9\u00c9\u00df\u4e16\U0001f600\u03a3\u03c3\u0130\u01c6\ufb01\u00b2\u0663\u00a0\u2028\u0301\u00ad"

    def __init__(self, seed, names):
        self.random = random.Random(seed)
        self.names = list(names) + ["undefined_name"]

    def pick(self, *choices):
        return self.random.choice(choices)

    def chance(self, probability):
        return self.random.random() < probability

    def literal(self, text=None):
        if text is None:
            text = "".join(self.random.choice(self.CHARACTERS) for _ in range(self.pick(0, 1, 1, 2, 3, 5, 8)))
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"

    def number(self):
        return self.pick(
            str(self.random.randint(-5, 12)), repr(round(self.random.uniform(-50, 50), self.random.randint(0, 4))),
            "1e3", "2.5", "0", "1234567", "1e-7", "1e16",
        )

    def name(self):
        return self.random.choice(self.names)

    def specification(self):
        return (
            self.pick("", "", "*<", ">", "^", "=", "\u00e9>") + self.pick("", "+", "-", " ") + self.pick("", "", "#")
            + self.pick("", "0") + self.pick("", "5", "12") + self.pick("", "", ",", "_") + self.pick("", ".2", ".0", ".10")
            + self.pick("", "d", "f", "e", "g", "x", "s", "b", "o", "%", "G", "c")
        )

    def arguments(self, depth, count=None):
        count = self.random.randint(0, 2) if count is None else count
        return ", ".join(self.expression(depth - 1) for _ in range(count))

    def filtered(self, depth):
        name = self.random.choice(self.FILTERS)
        arguments = f"({self.arguments(depth)})" if self.chance(0.3) else ""
        if name in ("map", "select", "reject"):
            arguments = f"({self.literal(self.random.choice(self.FILTERS if name == 'map' else self.TESTS))})"
        elif name in ("selectattr", "rejectattr"):
            arguments = f"({self.pick(chr(39) + 'age' + chr(39), '0')}, {self.literal(self.random.choice(self.TESTS))})"
        elif name in ("sort", "unique", "min", "max", "sum", "groupby") and self.chance(0.4):
            arguments = f"(attribute={self.pick(self.literal('name'), self.literal('age,name'), '0')})"
        elif name in ("wordwrap", "truncate", "center", "indent"):
            arguments = f"({self.random.randint(1, 12)}{self.pick('', ', true', ', false')})"
        elif name == "round":
            arguments = f"({self.random.randint(-3, 4)}{self.pick('', ', ' + self.literal('floor'))})"
        elif name == "tojson":
            arguments = self.pick("", "(indent=2)", "(true)", "(sort_keys=true)")
        return f"({self.expression(depth - 1)}|{name}{arguments})"

    def expression(self, depth):
        if depth <= 0:
            return self.pick(self.number(), self.literal(), self.name(), self.name(), self.pick("true", "none"))
        kind = self.random.random()
        if kind < 0.14:
            operator = self.pick("+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">=", "in", "and", "or")
            return f"({self.expression(depth - 1)} {operator} {self.expression(depth - 1)})"
        if kind < 0.18:
            return f"({self.expression(depth - 1)} if {self.expression(depth - 1)} else {self.expression(depth - 1)})"
        if kind < 0.24:
            return f"[{self.arguments(depth)}]"
        if kind < 0.28:
            return f"{{{self.literal()}: {self.expression(depth - 1)}, {self.number()}: {self.expression(0)}}}"
        if kind < 0.34:
            return f"{self.name()}[{self.pick(self.number(), self.literal(), ':2', '1:', '::-1', '-3:', '1:4:2')}]"
        if kind < 0.62:
            return self.filtered(depth)
        if kind < 0.68:
            argument = f"({self.expression(depth - 1)})" if self.chance(0.4) else ""
            return f"({self.expression(depth - 1)} is {self.pick('', 'not ')}{self.random.choice(self.TESTS)}{argument})"
        if kind < 0.90:
            argument = self.pick("", self.literal(), self.number(), f"{self.literal()}, {self.number()}", self.literal() * 2)
            return f"{self.pick(self.literal(), 's', 'uni', 'multi')}.{self.random.choice(self.METHODS)}({argument})"
        if kind < 0.95:
            return f"{self.literal('{:' + self.specification() + '}')}.format({self.expression(0)})"
        flags = self.pick("", "-", "0", "+", "#") + self.pick("", "5", "12") + self.pick("", ".2", ".0")
        return f"({self.literal('%' + flags + self.random.choice('sdrfegxXoc'))} % {self.expression(0)})"

    def space(self):
        return "".join(self.pick("", " ", "\n", "  ", "\n  ", "\t", "x", " \n", "\r\n") for _ in range(self.random.randint(0, 3)))

    def tag(self, text):
        return "{%" + self.pick("", "", "-", "+") + f" {text} " + self.pick("", "", "-", "+") + "%}"

    def body(self, depth):
        return self.space() + "".join(self.statement(depth) + self.space() for _ in range(self.random.randint(1, 3)))

    def statement(self, depth):
        kind = self.random.random() if depth > 0 else 0
        if kind < 0.3:
            return "{{" + self.pick("", "-") + " " + self.expression(self.pick(0, 0, 1)) + " " + self.pick("", "-") + "}}"
        if kind < 0.36:
            return self.pick("{# c #}", "{#- c\n-#}", self.tag("raw").replace("+%}", "%}") + " {{ x }} " + self.tag("endraw"))
        if kind < 0.52:
            other = self.tag("else") + self.body(depth - 1) if self.chance(0.4) else ""
            return self.tag("if " + self.expression(1)) + self.body(depth - 1) + other + self.tag("endif")
        if kind < 0.70:
            head = self.pick("x in li", "x in range(2)", "k, v in d.items()", "x in li if x > 1", "x in tree recursive")
            inside = self.body(depth - 1) + self.pick("", "{{ loop.index }}{{ loop.last }}", "{% if loop.first %}{% continue %}{% endif %}")
            return self.tag("for " + head) + inside + self.tag("endfor")
        if kind < 0.80:
            return self.tag(f"set {self.pick('x', 'i', 'q')} = {self.expression(1)}")
        if kind < 0.88:
            return self.tag("filter upper") + self.body(depth - 1) + self.tag("endfilter")
        if kind < 0.94:
            return self.tag("macro m(x, y=2)") + self.body(depth - 1) + self.tag("endmacro") + "{{ m(1) }}"
        return self.tag("generation") + self.body(depth - 1) + self.tag("endgeneration")

    def template(self):
        return "{{ " + self.expression(self.pick(1, 2, 2, 3)) + " }}" if self.chance(0.6) else self.body(3)


def compare(arguments):
    environment = make_environment()
    moetier = Moetier(arguments.moetier)
    cases = json.loads((DATA / "cases.json").read_text())
    conversations = json.loads((DATA / "conversations.json").read_text())
    base = {"messages": [], **cases["variables"]}  # the program wants messages
    work = [(c["template"], {**base, **c.get("variables", {})}) for c in cases["cases"]]
    for path in sorted(DATA.glob("*.jinja")) + sorted(arguments.shared.glob("*.jinja")):
        work += [(read_template(path), c["variables"]) for c in conversations]
    inventor = Inventor(arguments.seed, base)
    work += [(inventor.template(), base) for _ in range(arguments.random)]
    differing = 0
    for template, variables in work:
        if "strftime_now" in template and "%f" in template:
            continue  # microseconds
        reference = render(environment, template, variables)
        if " at 0x" in reference.get("expected", "").lower():
            continue  # an address: nobody can agree with that
        ours = moetier.render(template, variables)
        if not agree(reference, ours):
            differing += 1
            print(f"template {template[:400]!r}\n  jinja2  {str(reference)[:400]}\n  moetier {str(ours)[:400]}")
    print(f"{len(work)} renderings, {differing} differ")
    return 1 if differing else 0


def main():
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared" / "templates")
    commands = parser.add_subparsers(required=True)
    commands.add_parser("update").set_defaults(run=update)
    comparing = commands.add_parser("compare")
    comparing.add_argument("moetier")
    comparing.add_argument("--random", type=int, default=0)
    comparing.add_argument("--seed", type=int, default=1)
    comparing.set_defaults(run=compare)
    arguments = parser.parse_args()
    sys.exit(arguments.run(arguments))


if __name__ == "__main__":
    main()
