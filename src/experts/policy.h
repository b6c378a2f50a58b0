// What stays and what goes: ranks all entries of all layers. Plain classes without memory, threads or time; the same
// run in the engine and in the simulator.
#pragma once

#include <memory>
#include <string_view>

#include "experts/residency.h"

namespace moetier {

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
};

}  // namespace moetier
