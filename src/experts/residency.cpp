#include "experts/residency.h"

namespace moetier {

std::string_view to_string(ExpertMode mode) {
  switch (mode) {
    case ExpertMode::automatic:
      return "auto";
    case ExpertMode::resident:
      return "resident";
    case ExpertMode::mmap:
      return "mmap";
    case ExpertMode::advise:
      return "advise";
    case ExpertMode::noop:
      return "noop";
    case ExpertMode::stream:
      return "stream";
  }
  return "";
}

std::string_view to_string(DensePolicy policy) {
  switch (policy) {
    case DensePolicy::automatic:
      return "auto";
    case DensePolicy::mmap:
      return "mmap";
    case DensePolicy::warm:
      return "warm";
    case DensePolicy::anon:
      return "anon";
  }
  return "";
}

std::string_view to_string(CachePolicy policy) {
  switch (policy) {
    case CachePolicy::standard:
      return "default";
    case CachePolicy::lru:
      return "lru";
    case CachePolicy::heat:
      return "heat";
    case CachePolicy::cycle:
      return "cycle";
    case CachePolicy::pinned:
      return "pinned";
    case CachePolicy::adaptive:
      return "adaptive";
    case CachePolicy::reuse:
      return "reuse";
  }
  return "";
}

}  // namespace moetier
