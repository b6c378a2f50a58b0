// Attributes and items, as the sandbox lets a template see them.
#pragma once

#include <string_view>

#include "tokenizer/template/value.h"

namespace moetier::jinja {

/// object.name: the attribute, else the item, else undefined. Private and changing attributes are undefined too, and
/// raise a `security` fault when used.
Value get_attribute(const Value& object, std::string_view name);
/// object[key]: the item, else (for a string key) the attribute, else undefined.
Value get_item(const Value& object, const Value& key);
/// What `attr` finds: the attribute and never the item.
Value get_attribute_only(const Value& object, std::string_view name);
/// object[key] of Python alone; missing where that raises TypeError, IndexError or KeyError.
Value plain_item(const Value& object, const Value& key);

}  // namespace moetier::jinja
