#include "experts/policy_heat.h"

#include "experts/heat.h"

namespace moetier {
namespace {

class HeatPolicy : public Policy {
 public:
  HeatPolicy(std::span<const LayerShape> shapes, double half_life) : heat_(shapes, half_life) {}
  std::string_view name() const override { return "heat"; }
  void begin_token(int64_t rows) override { heat_.advance(rows); }
  void touch(int layer, std::span<const int32_t> picks, int64_t rows) override {
    const size_t per_row = rows > 0 ? picks.size() / static_cast<size_t>(rows) : 0;
    for (size_t i = 0; i < picks.size(); ++i)
      heat_.add(layer, picks[i], per_row > 0 ? static_cast<int64_t>(i / per_row) : 0);
  }
  std::span<const double> keys(int layer) const override { return heat_.sums(layer); }
  bool admits(int layer, int expert, int victim_layer, int victim_expert) const override {
    return of(layer, expert) >= of(victim_layer, victim_expert);
  }

 protected:
  double of(int layer, int expert) const { return value(layer, keys(layer)[static_cast<size_t>(expert)]); }
  Heat heat_;
};

class CyclePolicy : public HeatPolicy {
 public:
  CyclePolicy(std::span<const LayerShape> shapes, double half_life, double weight)
      : HeatPolicy(shapes, half_life), layers_(static_cast<int>(shapes.size())), weight_(weight / layers_) {}
  std::string_view name() const override { return "cycle"; }
  void touch(int layer, std::span<const int32_t> picks, int64_t rows) override {
    HeatPolicy::touch(layer, picks, rows);
    at_ = layer;
  }
  double value(int layer, double key) const override {
    const int ahead = layer > at_ ? layer - at_ : layer - at_ + layers_;
    return heat_.now(key) - weight_ * ahead;
  }
  double worth(int, double key) const override { return heat_.now(key); }

 private:
  int layers_, at_ = 0;
  double weight_;
};

}  // namespace

std::unique_ptr<Policy> make_heat_policy(std::span<const LayerShape> shapes, double half_life) {
  return std::make_unique<HeatPolicy>(shapes, half_life);
}

std::unique_ptr<Policy> make_cycle_policy(std::span<const LayerShape> shapes, double half_life, double weight) {
  return std::make_unique<CyclePolicy>(shapes, half_life, weight);
}

std::unique_ptr<Policy> make_default_policy(std::span<const LayerShape> shapes) {
  class Default final : public CyclePolicy {
   public:
    using CyclePolicy::CyclePolicy;
    std::string_view name() const override { return "default"; }
  };
  return std::make_unique<Default>(shapes, 8, 0.5);
}

}  // namespace moetier
