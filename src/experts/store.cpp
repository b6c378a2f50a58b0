#include "experts/store.h"

#include "base/error.h"

namespace moetier {

namespace {

/// Calls f(a's member, b's member) for all of them.
template <typename A, typename B, typename F>
void for_counters(A& a, B& b, F f) {
  for (const auto member :
       {&StoreCounters::hits, &StoreCounters::misses, &StoreCounters::few_hits, &StoreCounters::few_misses,
        &StoreCounters::hits_profile, &StoreCounters::large_hits, &StoreCounters::large_hit_bytes,
        &StoreCounters::large_misses, &StoreCounters::evictions, &StoreCounters::rereads, &StoreCounters::swaps,
        &StoreCounters::reads, &StoreCounters::bytes_read, &StoreCounters::speculated, &StoreCounters::speculated_used,
        &StoreCounters::speculated_bytes}) {
    f(a.*member, b.*member);
  }
}

template <typename A, typename B, typename F>
void for_meters(A& a, B& b, F f) {
  for (const auto member : {&StoreMeters::read_wait_seconds, &StoreMeters::manage_seconds, &StoreMeters::advise_seconds,
                            &StoreMeters::copy_seconds}) {
    f(a.*member, b.*member);
  }
  for (const auto member : {&StoreMeters::advise_calls, &StoreMeters::advise_bytes, &StoreMeters::advise_failures,
                            &StoreMeters::copied_bytes}) {
    f(a.*member, b.*member);
  }
}

constexpr auto kAdd = [](auto& a, auto b) { a += b; };
constexpr auto kTake = [](auto& a, auto b) { a -= b; };

}  // namespace

StoreCounters& StoreCounters::operator+=(const StoreCounters& other) {
  for_counters(*this, other, kAdd);
  return *this;
}

StoreCounters StoreCounters::operator-(const StoreCounters& before) const {
  StoreCounters d = *this;
  for_counters(d, before, kTake);
  return d;
}

StoreMeters& StoreMeters::operator+=(const StoreMeters& other) {
  for_meters(*this, other, kAdd);
  return *this;
}

StoreMeters StoreMeters::operator-(const StoreMeters& before) const {
  StoreMeters d = *this;
  for_meters(d, before, kTake);
  return d;
}

bool ExpertStore::read_ahead(int, int) const {
  return false;
}

void ExpertStore::set_budget(uint64_t) {
  fail("the experts are not in a cache, so it cannot be given another budget; load the model with --experts stream");
}

int ExpertStore::rebalance(int) {
  return -1;
}

}  // namespace moetier
