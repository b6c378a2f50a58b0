// Calls that are told while they are written, in formats whose arguments are JSON at a place of their own.
#pragma once

#include <string_view>

#include "engine/structured/call_text.h"

namespace moetier {

/// How one format's calls are followed.
struct CallStreamer {
  /// What stands before a call's arguments: of the `first` of a section with the section's opening, or of a further
  /// one. Good: the cursor stands at their `{`.
  Read (*head)(CallCursor& c, bool first, const ToolTypes& types, ToolCall& call);
  /// From the arguments' end to the end of the call.
  Read (*tail)(CallCursor& c);
  /// Behind a call. Good: the section ends here, and its closing is passed. Bad: another call, or something else.
  Read (*next)(CallCursor& c);
};

/// nullptr for formats whose calls are only told whole.
const CallStreamer* call_streamer(ChatFormat format);

/// What a head or a tail may take at most; a longer one is none.
inline constexpr size_t kLongestCallMarkup = 4096;

/// Finds the end of an object that comes in pieces.
class ObjectScan {
 public:
  /// How many bytes of `text` belong to the object.
  size_t take(std::string_view text);
  bool whole() const { return begun_ && depth_ == 0; }

 private:
  size_t depth_ = 0;
  bool begun_ = false, in_string_ = false, escaped_ = false;
};

/// Whether the text is one JSON object and nothing else.
bool is_json_object(std::string_view text);

}  // namespace moetier
