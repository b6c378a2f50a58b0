"""Right answers to the tasks of `moetier eval code`, so that a test can tell that the asserts accept them."""


# --- fizz
def fizz(n):
    return [("Fizz" * (i % 3 == 0) + "Buzz" * (i % 5 == 0)) or str(i) for i in range(1, n + 1)]


# --- vowels
def count_vowels(text):
    return sum(c in "aeiou" for c in text.lower())


# --- palindrome
def is_palindrome(text):
    kept = [c.lower() for c in text if c.isalnum()]
    return kept == kept[::-1]


# --- second
def second_largest(numbers):
    distinct = sorted(set(numbers))
    return distinct[-2] if len(distinct) > 1 else None


# --- words
def word_counts(text):
    counts = {}
    for word in text.lower().split():
        word = word.strip(".,!?")
        if word:
            counts[word] = counts.get(word, 0) + 1
    return counts


# --- gcd
def gcd(a, b):
    while b:
        a, b = b, a % b
    return a


# --- intervals
def merge_intervals(intervals):
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


# --- lru
class LRU:
    def __init__(self, capacity):
        self.capacity, self.held = capacity, {}

    def get(self, key):
        if key not in self.held:
            return None
        self.held[key] = self.held.pop(key)
        return self.held[key]

    def put(self, key, value):
        self.held.pop(key, None)
        self.held[key] = value
        if len(self.held) > self.capacity:
            del self.held[next(iter(self.held))]


# --- calc
def calc(text):
    tokens, i = [], 0
    while i < len(text):
        if text[i].isdigit():
            j = i
            while j < len(text) and text[j].isdigit():
                j += 1
            tokens.append(text[i:j])
            i = j
        else:
            if text[i] != " ":
                tokens.append(text[i])
            i += 1

    def atom():
        token = tokens.pop(0)
        if token == "-":
            return -atom()
        if token == "(":
            value = total()
            tokens.pop(0)
            return value
        return float(token)

    def product():
        value = atom()
        while tokens and tokens[0] in "*/":
            value = value * atom() if tokens.pop(0) == "*" else value / atom()
        return value

    def total():
        value = product()
        while tokens and tokens[0] in "+-":
            value = value + product() if tokens.pop(0) == "+" else value - product()
        return value

    return total()


# --- topological
def build_order(needs):
    names = set(needs) | {d for ds in needs.values() for d in ds}
    left = {n: set(needs.get(n, [])) for n in names}
    order = []
    while left:
        ready = sorted(n for n, ds in left.items() if not ds)
        if not ready:
            return None
        for name in ready:
            order.append(name)
            del left[name]
        for ds in left.values():
            ds.difference_update(ready)
    return order


# --- edit
def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


# --- roman
PARTS = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"),
         (5, "V"), (4, "IV"), (1, "I")]


def to_roman(n):
    out = ""
    for value, letters in PARTS:
        out += letters * (n // value)
        n %= value
    return out


def from_roman(text):
    at, n = 0, 0
    for value, letters in PARTS:
        while text.startswith(letters, at):
            n += value
            at += len(letters)
    if not 1 <= n <= 3999 or to_roman(n) != text:
        raise ValueError(text)
    return n


# --- islands
def islands(grid):
    land = {(r, c) for r, row in enumerate(grid) for c, x in enumerate(row) if x == "#"}
    sizes = []
    while land:
        stack, size = [land.pop()], 0
        while stack:
            r, c = stack.pop()
            size += 1
            for near in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
                if near in land:
                    land.remove(near)
                    stack.append(near)
        sizes.append(size)
    return sorted(sizes, reverse=True)


# --- change
def change(amount, coins):
    fewest, last = [0] + [None] * amount, [None] * (amount + 1)
    for total in range(1, amount + 1):
        for coin in coins:
            if coin <= total and fewest[total - coin] is not None:
                if fewest[total] is None or fewest[total - coin] + 1 < fewest[total]:
                    fewest[total], last[total] = fewest[total - coin] + 1, coin
    if fewest[amount] is None:
        return None
    out = []
    while amount:
        out.append(last[amount])
        amount -= last[amount]
    return out


# --- spiral
def spiral(matrix):
    out, rows = [], [list(r) for r in matrix]
    while rows:
        out += rows.pop(0)
        rows = [list(r) for r in zip(*rows)][::-1]
    return out


# --- rle
def encode(text):
    out, i = "", 0
    while i < len(text):
        j = i
        while j < len(text) and text[j] == text[i]:
            j += 1
        out += str(j - i) + ("\\" if text[i].isdigit() or text[i] == "\\" else "") + text[i]
        i = j
    return out


def decode(code):
    out, i = "", 0
    while i < len(code):
        j = i
        while code[j].isdigit():
            j += 1
        count, i = int(code[i:j]), j
        if code[i] == "\\":
            i += 1
        out += code[i] * count
        i += 1
    return out
