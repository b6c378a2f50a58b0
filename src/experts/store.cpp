#include "experts/store.h"

#include "base/error.h"

namespace moetier {

StoreCounters& StoreCounters::operator+=(const StoreCounters& other) {
  for (const auto member :
       {&StoreCounters::hits, &StoreCounters::misses, &StoreCounters::hits_profile, &StoreCounters::large_hits,
        &StoreCounters::large_hit_bytes, &StoreCounters::large_misses, &StoreCounters::evictions,
        &StoreCounters::rereads, &StoreCounters::swaps, &StoreCounters::reads, &StoreCounters::bytes_read,
        &StoreCounters::speculated, &StoreCounters::speculated_used, &StoreCounters::speculated_bytes}) {
    this->*member += other.*member;
  }
  return *this;
}

void ExpertStore::set_budget(uint64_t) {
  fail("the experts are not in a cache, so it cannot be given another budget; load the model with --experts stream");
}

int ExpertStore::rebalance(int) {
  return -1;
}

}  // namespace moetier
