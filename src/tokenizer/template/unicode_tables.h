// Character properties and case maps as sorted runs; made by make_unicode_tables.py.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moetier::jinja::tables {

/// The characters first, first + step, ...: `count` of them.
struct Run {
  uint32_t first;
  uint32_t count;
  uint8_t step;
};

/// A run whose characters map to themselves plus `delta`.
struct Shift {
  uint32_t first;
  uint32_t count;
  uint8_t step;
  int32_t delta;
};

/// A character that becomes two or three (0 ends the list).
struct Expansion {
  uint32_t first;
  uint16_t to[3];
};

#define MOETIER_UNICODE_TABLE(type, name) \
  extern const type name[];               \
  extern const size_t name##_size;
MOETIER_UNICODE_TABLE(Run, alpha)
MOETIER_UNICODE_TABLE(Run, decimal)
MOETIER_UNICODE_TABLE(Run, digit)
MOETIER_UNICODE_TABLE(Run, numeric)
MOETIER_UNICODE_TABLE(Run, space)
MOETIER_UNICODE_TABLE(Run, lower)
MOETIER_UNICODE_TABLE(Run, upper)
MOETIER_UNICODE_TABLE(Run, title_only)
MOETIER_UNICODE_TABLE(Run, unprintable)
MOETIER_UNICODE_TABLE(Run, identifier_start_more)
MOETIER_UNICODE_TABLE(Run, identifier_more)
MOETIER_UNICODE_TABLE(Run, not_identifier)
MOETIER_UNICODE_TABLE(Run, cased)
MOETIER_UNICODE_TABLE(Run, case_ignorable)
MOETIER_UNICODE_TABLE(Shift, to_lower)
MOETIER_UNICODE_TABLE(Shift, to_upper)
MOETIER_UNICODE_TABLE(Shift, to_title)
MOETIER_UNICODE_TABLE(Shift, to_fold)
MOETIER_UNICODE_TABLE(Expansion, to_lower_long)
MOETIER_UNICODE_TABLE(Expansion, to_upper_long)
MOETIER_UNICODE_TABLE(Expansion, to_title_long)
MOETIER_UNICODE_TABLE(Expansion, to_fold_long)
#undef MOETIER_UNICODE_TABLE

}  // namespace moetier::jinja::tables
