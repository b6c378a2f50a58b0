#include "experts/policy_heat.h"

#include <algorithm>

#include "experts/heat.h"

namespace moetier {
namespace {

class HeatPolicy : public Policy {
 public:
  HeatPolicy(std::span<const LayerShape> shapes, double half_life) : heat_(shapes, half_life) {}
  std::string_view name() const override { return "heat"; }
  void touch(int layer, std::span<const int32_t> picks, int64_t rows) override { heat_.add_rows(layer, picks, rows); }
  std::span<const double> keys(int layer) const override { return heat_.sums(layer); }
  double value(int layer, double key) const override { return heat_.now(layer, key); }
  double worth(int layer, double key) const override { return heat_.now(layer, key); }
  bool admits(int layer, int expert, int victim_layer, int victim_expert) const override {
    return of(layer, expert) >= of(victim_layer, victim_expert);
  }

 private:
  double of(int layer, int expert) const { return value(layer, keys(layer)[static_cast<size_t>(expert)]); }
  Heat heat_;
};

class CyclePolicy final : public HeatPolicy {
 public:
  CyclePolicy(std::span<const LayerShape> shapes, double half_life, double weight)
      : HeatPolicy(shapes, half_life),
        layers_(static_cast<int>(shapes.size())),
        weight_(weight / std::max(layers_, 1)) {}
  std::string_view name() const override { return "cycle"; }
  void touch(int layer, std::span<const int32_t> picks, int64_t rows) override {
    HeatPolicy::touch(layer, picks, rows);
    at_ = layer;
  }
  double value(int layer, double key) const override {
    return worth(layer, key) - weight_ * layers_ahead(layer, at_, layers_);
  }

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

}  // namespace moetier
