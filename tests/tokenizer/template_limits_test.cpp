// Hostile templates end with a fault: soon, in little memory, and without running out of stack.
#include <gtest/gtest.h>

#include <thread>

#include "template_support.h"

namespace moetier::jinja {
namespace {

std::string times(const std::string& text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

Limits small() {
  Limits limits;
  limits.steps = 300'000;
  limits.memory = size_t{1} << 24;
  limits.text = size_t{1} << 20;
  return limits;
}

Outcome limited(const std::string& source) {
  return render(source, nlohmann::ordered_json::object(), small());
}

TEST(TemplateLimits, EndlessWorkIsAFault) {
  const std::string ns = "{% set ns = namespace(s='ab', l=[1]) %}";
  for (const std::string& source :
       {std::string("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"),
        ns + "{% for i in range(90) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        ns + "{% for i in range(90) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", std::string("{{ 'a' * 10**9 }}"),
        std::string("{{ [1] * 10**9 }}"), std::string("{{ ('a' * 10**5) | replace('a', 'b' * 1000) }}"),
        std::string("{{ '' | center(10**12) }}"), std::string("{{ '%*d' % (10**9, 1) }}"),
        std::string("{{ '{:1000000000}'.format(1) }}"), std::string("{{ '%.99999999f' % 1 }}"),
        std::string("{{ '1'.zfill(10**15) }}"), std::string("{{ '\\t'.expandtabs(10**18) }}"),
        std::string("{{ 'a' | indent(10**12, true) }}"), std::string("{{ [1] | tojson(indent=10**12) }}"),
        std::string("{{ [1] | batch(10**12, 'x') | list }}"), std::string("{{ [1] | slice(10**12) | list }}"),
        std::string("{% set s = 'x' * 10**6 %}{% for i in range(1000) %}{{ s }}{% endfor %}"),
        std::string("{% set s = 'x' * 10**6 %}{% for i in range(100000) %}{% set y = s ~ i %}{% endfor %}"),
        std::string("{% set s = 'a' * 10**6 %}{% set t = 'a' * 10**5 ~ 'b' %}{% for i in range(9999) %}{% if t in s %}"
                    "{% endif %}{% endfor %}")}) {
    const Outcome outcome = limited(source);
    EXPECT_FALSE(outcome.rendered) << source;
    EXPECT_EQ(outcome.kind, FaultKind::limit) << source << "\n" << outcome.text;
    EXPECT_EQ(outcome.line, 1) << source;
  }
}

/// What works on much text or many items is paid for by their number, not by the expression: a few rounds are too many.
TEST(TemplateLimits, WorkOnTextIsChargedByItsSize) {
  Limits limits;
  limits.steps = 2'000'000;
  const std::string a = "{% set s = 'a' * 4000000 %}", copy = a + "{% set t = 'a' * 4000000 %}";
  const std::string list = "{% set l = [1] * 100000 %}{% set m = [1] * 100000 %}";
  for (const auto& [before, expression] :
       std::vector<std::pair<std::string, std::string>>{{a, "s | upper | length"},
                                                        {a, "s in s"},
                                                        {a, "s == s"},
                                                        {copy, "s == t"},
                                                        {copy, "t in s"},
                                                        {copy, "[s] == [t]"},
                                                        {copy, "s < t"},
                                                        {copy, "s.startswith(t)"},
                                                        {copy, "s.endswith(t)"},
                                                        {copy, "s.removesuffix(t)"},
                                                        {copy, "s.find(t)"},
                                                        {copy, "s.rfind(t)"},
                                                        {a, "s.isidentifier()"},
                                                        {a, "s.islower()"},
                                                        {a, "s is lower"},
                                                        {a, "'A' ~ s.istitle()"},
                                                        {a, "s.expandtabs()"},
                                                        {a, "s | e"},
                                                        {a, "s | urlencode"},
                                                        {a, "s | striptags"},
                                                        {a, "s[::1000000]"},
                                                        {a, "s | int"},
                                                        {a, "'%s' % s"},
                                                        {a, "s ~ 'x'"},
                                                        {a, "{s: 1}"},
                                                        {a, "s | replace('b', 'c')"},
                                                        {"", "'a' * 4000000"},
                                                        {"", "'\u00e9'.center(1000000)"},
                                                        {"", "'%.1000000f' % 1.5"},
                                                        {"", "'{:01000000,}'.format(1)"},
                                                        {"", "1e300 | round(300)"},
                                                        {"{% set s = '%c' * 1000 %}", "strftime_now(s)"},
                                                        {list, "l + m"},
                                                        {list, "l[1:]"},
                                                        {list, "l == m"},
                                                        {list, "l < m"},
                                                        {"{% set l = (1,) * 100000 %}", "{l: 1}"}}) {
    const Outcome outcome =
        render(before + "{% for i in range(10000) %}{% set y = " + expression + " %}{% endfor %}x", {}, limits);
    EXPECT_EQ(outcome.kind, FaultKind::limit) << expression << outcome.text;
    EXPECT_EQ(outcome.text, "the template takes more than 2000000 steps: it may be looping") << expression;
  }
}

TEST(TemplateLimits, SplittingFromTheRightCostsWhatItLooksAt) {
  Limits limits;
  limits.steps = 400'000;
  EXPECT_EQ(render("{{ ('a b ' * 50000).rsplit('b') | length }}", {}, limits).text, "50001");
}

TEST(TemplateLimits, ARangeIsAsLongAsTheSandboxAllows) {
  EXPECT_EQ(render("{{ range(100000) | length }}", {}).text, "100000");
  EXPECT_EQ(render("{{ range(100001) | length }}", {}).kind, FaultKind::overflow);
}

TEST(TemplateLimits, IntegersBeyond128BitsAreAFault) {
  EXPECT_EQ(render("{{ 2**126 }}", {}).text, "85070591730234615865843651857942052864");
  for (const char* source : {"{{ 2**127 }}", "{{ 10**10**10 }}", "{{ 99999999999999999999999999999999999999999 }}",
                             "{{ ('9' * 50) | int }}", "{{ 1e39 | int }}", "{{ -(-2**126 * 2) }}"}) {
    EXPECT_EQ(render(source, {}).kind, FaultKind::overflow) << source;
  }
}

TEST(TemplateLimits, DeepSourcesAreAFault) {
  for (const std::string& source :
       {"{{ " + times("(", 5000) + "1" + times(")", 5000) + " }}", "{{ " + times("[", 5000) + times("]", 5000) + " }}",
        "{{ " + times("not ", 50000) + "1 }}", "{{ " + times("-", 50000) + "1 }}", "{{ 1" + times("+1", 50000) + " }}",
        "{{ a" + times(".b", 50000) + " }}", "{{ a" + times("|e", 50000) + " }}", times("{% if 1 %}", 50000),
        "{{ " + times("1 if 0 else ", 20000) + "1 }}", "{{ " + times("{1:", 5000) + "1" + times("}", 5000) + " }}",
        times("{% macro m() %}", 5000), "{{ a" + times("(b", 5000) + times(")", 5000) + " }}"}) {
    EXPECT_EQ(render(source, {}).kind, FaultKind::limit) << source.substr(0, 60);
  }
  EXPECT_EQ(render("{{ " + times("(", 90) + "1" + times(")", 90) + " }}", {}).text, "1");
  EXPECT_EQ(render("{{ 1" + times("+1", 300) + " }}", {}).text, "301");
  EXPECT_EQ(render(times("{% if 1 %}", 150) + "x" + times("{% endif %}", 150), {}).text, "x");
}

TEST(TemplateLimits, DeepEvaluationsAreAFaultOnASmallStack) {
  std::thread([] {  // as much stack as the threads of a server have, used to the limit
    for (const std::string& source :
         {std::string("{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}"),
          "{% macro m(n) %}{{ " + times("(0 or [", 40) + "m(n)" + times("][0])", 40) + " }}{% endmacro %}{{ m(1) }}",
          std::string("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
          std::string("{% block a %}{{ self.a() }}{% endblock %}"),
          std::string("{% macro m() %}{{ caller() if caller }}{% call m() %}x{% endcall %}{% endmacro %}{{ m() }}"),
          std::string(
              "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}"),
          std::string("{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}"
                      "{{ ns.x | tojson }}"),
          std::string("{% set ns = namespace(x=(), y=()) %}{% for i in range(9999) %}{% set ns.x = (ns.x,) %}"
                      "{% set ns.y = (ns.y,) %}{% endfor %}{{ ns.x == ns.y }}"),
          std::string("{% set ns = namespace(x=()) %}{% for i in range(9999) %}{% set ns.x = (ns.x,) %}{% endfor %}"
                      "{{ {ns.x: 1} }}"),
          std::string("{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}{% set ns.x = ns.x | map('string') %}"
                      "{% endfor %}{{ ns.x | list }}")}) {
      EXPECT_EQ(render(source, {}).kind, FaultKind::limit) << source;
    }
  })
      .join();
}

TEST(TemplateLimits, RecursionAsDeepAsPythonsWorks) {
  EXPECT_EQ(
      render("{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{% else %}end{% endif %}{% endmacro %}{{ m(150) }}", {}).text,
      "end");
}

TEST(TemplateLimits, WhatNestsDeeplyOrHoldsItselfIsFreed) {
  for (const std::string& source :
       {std::string("{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}ok"),
        std::string("{% set ns = namespace(x=none) %}{% for i in range(99999) %}{% set ns.x = namespace(p=ns.x) %}{% "
                    "endfor %}ok"),
        std::string("{% set ns = namespace(x=[1]) %}{% for i in range(99999) %}{% set ns.x = ns.x | map('string') %}{% "
                    "endfor %}ok"),
        std::string("{% for i in range(9999) %}{% set n = namespace() %}{% set n.me = [n] %}{% endfor %}ok"),
        std::string("{% set ns = namespace() %}{% for i in range(9999) %}{% macro m() %}{{ m }}{% endmacro %}"
                    "{% set ns.m = [m, ns.m] %}{% endfor %}ok"),
        std::string("{% set ns = namespace() %}{% for i in [1, 2] %}{% set ns.l = loop %}{% if loop.changed(loop) %}"
                    "{% endif %}{% endfor %}ok"),
        std::string(
            "{% set ns = namespace() %}{% set ns.g = [ns] | unique(attribute='g') %}{{ ns.g | list | length }}ok")}) {
    const Outcome outcome = render(source, {});
    EXPECT_TRUE(outcome.rendered) << source << "\n" << outcome.text;
    EXPECT_TRUE(outcome.text.ends_with("ok")) << outcome.text;
  }
}

TEST(TemplateLimits, HugeSourcesCompileInBoundedTime) {
  EXPECT_EQ(render(std::string(2 << 20, 'x'), {}).kind, FaultKind::limit);
  std::string names, blocks;
  for (int i = 0; i < 5000; ++i) {
    names += fmt::format("{{% set a{0} = 1 %}}{{% if a{0} %}}{{% endif %}}", i);
    blocks += fmt::format("{{% block b{0} %}}{{% endblock %}}", i);
  }
  EXPECT_TRUE(render(names, {}).rendered);
  EXPECT_TRUE(render(blocks, {}).rendered);
  EXPECT_EQ(render("{% raw %}" + times("{% ", 100000), {}).text, "Missing end of raw directive");
  EXPECT_EQ(render(times("{#", 100000), {}).text, "Missing end of comment tag");
}

TEST(TemplateLimits, VariablesMayNotNestForever) {
  const auto nested = [](size_t depth) {
    return nlohmann::ordered_json::parse("{\"x\": " + times("[", depth) + times("]", depth) + "}");
  };
  EXPECT_EQ(render("{{ x | tojson }}", nested(300)).text, times("[", 300) + times("]", 300));
  EXPECT_EQ(render("{{ x | tojson }}", nested(5000)).kind, FaultKind::limit);
}

}  // namespace
}  // namespace moetier::jinja
