#include "cli/eval_tasks.h"

#include <array>

namespace moetier::cli {
namespace {

constexpr std::array<CodeTask, 6> kSmoke = {{
    {"fizz",
     "Write a Python function fizz(n) that returns a list of strings for the numbers 1 to n: \"Fizz\" for multiples of "
     "3, "
     "\"Buzz\" for multiples of 5, \"FizzBuzz\" for multiples of both, and the number itself as a string otherwise.",
     R"(assert fizz(0) == []
assert fizz(5) == ['1', '2', 'Fizz', '4', 'Buzz']
assert fizz(15)[14] == 'FizzBuzz'
assert len(fizz(30)) == 30 and fizz(30)[29] == 'FizzBuzz'
)"},
    {"vowels",
     "Write a Python function count_vowels(text) that counts the letters a, e, i, o and u in a string, upper case ones "
     "too.",
     R"(assert count_vowels('') == 0
assert count_vowels('Moetier') == 4
assert count_vowels('RHYTHM') == 0
assert count_vowels('AEIOU aeiou') == 10
)"},
    {"palindrome",
     "Write a Python function is_palindrome(text) that tells whether a string reads the same forwards and backwards "
     "when "
     "only its letters and digits are looked at and upper and lower case are the same.",
     R"(assert is_palindrome('A man, a plan, a canal: Panama') is True
assert is_palindrome('') is True
assert is_palindrome('ab') is False
assert is_palindrome('1 2 12') is False
assert is_palindrome('No lemon, no melon!') is True
)"},
    {"second",
     "Write a Python function second_largest(numbers) that returns the second largest distinct number of a list, or "
     "None if "
     "there is none.",
     R"(assert second_largest([3, 1, 2]) == 2
assert second_largest([5, 5, 5]) is None
assert second_largest([]) is None
assert second_largest([-1, -2, -1]) == -2
assert second_largest([10, 9, 10]) == 9
)"},
    {"words",
     "Write a Python function word_counts(text) that returns a dict from each lower-case word to how often it occurs. "
     "Words are "
     "separated by white space; the punctuation marks . , ! and ? at their ends do not belong to them.",
     R"(assert word_counts('') == {}
assert word_counts('The cat. The dog!') == {'the': 2, 'cat': 1, 'dog': 1}
assert word_counts('a a A, a?') == {'a': 4}
)"},
    {"gcd",
     "Write a Python function gcd(a, b) that returns the greatest common divisor of two non-negative integers without "
     "using the "
     "math module. gcd(0, n) is n.",
     R"(assert gcd(12, 18) == 6
assert gcd(0, 7) == 7
assert gcd(7, 0) == 7
assert gcd(17, 5) == 1
assert gcd(270, 192) == 6
)"},
}};

constexpr std::array<CodeTask, 10> kHard = {{
    {"intervals",
     "Write a Python function merge_intervals(intervals) that takes a list of [start, end] pairs with start <= end and "
     "returns "
     "the sorted list of disjoint pairs that cover the same numbers. Pairs that touch ([1, 2] and [2, 3]) become one. "
     "The input list must "
     "not be changed.",
     R"(given = [[8, 10], [1, 3], [2, 6], [15, 18], [17, 20], [6, 7]]
kept = [list(p) for p in given]
assert [list(p) for p in merge_intervals(given)] == [[1, 7], [8, 10], [15, 20]]
assert given == kept
assert list(merge_intervals([])) == []
assert [list(p) for p in merge_intervals([[1, 10], [2, 3]])] == [[1, 10]]
)"},
    {"lru",
     "Write a Python class LRU with a constructor LRU(capacity), get(key) that returns the value or None, and put(key, "
     "value). When "
     "more than capacity keys are held, the one that was used longest ago (by get or put) is dropped.",
     R"(c = LRU(2)
c.put('a', 1); c.put('b', 2)
assert c.get('a') == 1
c.put('c', 3)
assert c.get('b') is None and c.get('a') == 1 and c.get('c') == 3
c.put('a', 9); c.put('d', 4)
assert c.get('c') is None and c.get('a') == 9 and c.get('d') == 4
one = LRU(1)
one.put(1, 1); one.put(2, 2)
assert one.get(1) is None and one.get(2) == 2
)"},
    {"calc",
     "Write a Python function calc(text) that evaluates an arithmetic expression with integers, + - * /, parentheses, "
     "spaces and "
     "unary minus, with the usual precedence, and returns a float. Do not use eval or exec.",
     R"(assert abs(calc('1 + 2 * 3') - 7) < 1e-9
assert abs(calc('(1 + 2) * 3') - 9) < 1e-9
assert abs(calc('2 * -3 + 4') + 2) < 1e-9
assert abs(calc('10 / 4 / 5') - 0.5) < 1e-9
assert abs(calc('-(2 - 5) * (1 + 1)') - 6) < 1e-9
assert abs(calc('7 - 3 - 2') - 2) < 1e-9
)"},
    {"topological",
     "Write a Python function build_order(needs) that takes a dict from a task to the list of tasks that must come "
     "before it, and "
     "returns a list of all tasks (also those that only occur in lists) in an order that respects this, or None if "
     "there is none.",
     R"(def right(needs):
    order = build_order(needs)
    names = set(needs) | {d for ds in needs.values() for d in ds}
    assert sorted(order) == sorted(names)
    for t, ds in needs.items():
        for d in ds:
            assert order.index(d) < order.index(t)
right({'a': ['b', 'c'], 'b': ['c'], 'd': []})
right({'app': ['lib', 'log'], 'lib': ['base'], 'log': ['base']})
assert build_order({'a': ['b'], 'b': ['a']}) is None
assert build_order({'a': ['a']}) is None
assert build_order({}) == []
)"},
    {"edit",
     "Write a Python function edit_distance(a, b) that returns the least number of single-character insertions, "
     "deletions and "
     "substitutions that turn string a into string b. It must handle strings of 500 characters quickly.",
     R"(assert edit_distance('', '') == 0
assert edit_distance('kitten', 'sitting') == 3
assert edit_distance('flaw', 'lawn') == 2
assert edit_distance('abc', '') == 3
assert edit_distance('a' * 500, 'b' * 500) == 500
assert edit_distance('ab' * 200, 'ba' * 200) == 2
)"},
    {"roman",
     "Write two Python functions, to_roman(n) for integers from 1 to 3999 and from_roman(text), its inverse. "
     "from_roman must raise "
     "ValueError for text that to_roman never returns, such as 'IIII' or 'IC'.",
     R"(assert to_roman(1994) == 'MCMXCIV' and to_roman(3999) == 'MMMCMXCIX' and to_roman(4) == 'IV'
assert all(from_roman(to_roman(n)) == n for n in range(1, 4000))
for bad in ['IIII', 'IC', 'VV', '', 'IXI', 'ABC']:
    try:
        from_roman(bad)
        raise SystemExit('accepted ' + bad)
    except ValueError:
        pass
)"},
    {"islands",
     "Write a Python function islands(grid) that takes a list of strings of '#' (land) and '.' (water) of equal length "
     "and returns the "
     "sizes of all islands, largest first. Land is connected horizontally and vertically only. Grids of 300 x 300 must "
     "work.",
     R"(assert islands([]) == []
assert islands(['...', '...']) == []
assert islands(['##.', '..#', '#.#']) == [2, 2, 1]
assert islands(['#.#', '###', '#.#']) == [7]
assert islands(['#' * 300] * 300) == [90000]
)"},
    {"change",
     "Write a Python function change(amount, coins) that returns a list of coins (repeats allowed, from the list of "
     "positive integers "
     "coins) with the fewest coins that sum to amount, or None if that cannot be done.",
     R"(def right(amount, coins, count):
    got = change(amount, coins)
    assert got is not None and sum(got) == amount and len(got) == count and all(c in coins for c in got)
right(6, [1, 3, 4], 2)
right(0, [5], 0)
right(27, [1, 5, 10, 12], 3)
right(9999, [1, 2, 5, 10, 50, 100, 499], 24)
assert change(3, [2]) is None
assert change(7, [5, 10]) is None
)"},
    {"spiral",
     "Write a Python function spiral(matrix) that returns the elements of a rectangular matrix (a list of rows) in "
     "clockwise spiral order, "
     "beginning at the top left.",
     R"(assert spiral([]) == []
assert spiral([[1, 2, 3], [4, 5, 6], [7, 8, 9]]) == [1, 2, 3, 6, 9, 8, 7, 4, 5]
assert spiral([[1, 2, 3, 4]]) == [1, 2, 3, 4]
assert spiral([[1], [2], [3]]) == [1, 2, 3]
assert spiral([[1, 2], [3, 4], [5, 6]]) == [1, 2, 4, 6, 5, 3]
)"},
    {"rle",
     "Write two Python functions: encode(text) that replaces every run of the same character by its length and the "
     "character ('aaab' "
     "becomes '3a1b'), and decode(code), its inverse. The characters of text may be digits or backslashes too, so "
     "write each digit or "
     "backslash of the text with a backslash before it ('11' becomes '2\\1').",
     R"(assert encode('aaab') == '3a1b'
assert encode('') == '' and decode('') == ''
assert encode('11') == '2\\1'
assert encode('\\\\\\') == '3\\\\'
for t in ['aaab', '11', 'a1b22', '\\', 'x' * 120 + '7', '0011\\2', ' \n ']:
    assert decode(encode(t)) == t
)"},
}};

}  // namespace

std::span<const CodeTask> smoke_tasks() {
  return kSmoke;
}

std::span<const CodeTask> hard_tasks() {
  return kHard;
}

}  // namespace moetier::cli
