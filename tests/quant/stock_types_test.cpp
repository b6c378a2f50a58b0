// Whole models' types against those of the stock quantizer (tools/oracle/stock_types.py).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "quant/mixture.h"

namespace moetier {
namespace {

using nlohmann::json;

/// A tensor, and what each file type makes of it.
struct Expected {
  MixtureTensor tensor;
  std::map<std::string, std::string> types;  ///< by file type; none: all keep it
};

/// "q4_k*2 q3_k" for `count` tensors, one by one.
std::vector<std::string> spread(const std::string& runs, size_t count) {
  std::vector<std::string> types;
  std::istringstream words(runs);
  for (std::string word; words >> word;) {
    const size_t star = word.find('*');
    const size_t n = star == std::string::npos ? 1 : std::stoul(word.substr(star + 1));
    types.insert(types.end(), n, word.substr(0, star));
  }
  while (types.size() < count) types.push_back(types.back());
  return types;
}

std::vector<std::string> names_of(const json& entry) {
  const std::string pattern = entry.at("name");
  const size_t at = pattern.find('%');
  if (at == std::string::npos) return {pattern};
  std::vector<std::string> names;
  for (const json& run : entry.at("layers")) {
    for (int layer = run[0]; layer <= run[1]; ++layer) {
      names.push_back(pattern.substr(0, at) + std::to_string(layer) + pattern.substr(at + 1));
    }
  }
  return names;
}

std::vector<Expected> expected_tensors(const json& model) {
  std::vector<Expected> all;
  for (const json& entry : model.at("tensors")) {
    const std::vector<std::string> names = names_of(entry);
    const size_t first = all.size();
    for (const std::string& name : names) {
      Expected e{{name, {1, 1, 1, 1}, 4}, {}};
      for (size_t d = 0; d < 4; ++d) e.tensor.shape[d] = entry.at("shape")[d];
      while (e.tensor.n_dims > 1 && e.tensor.shape[static_cast<size_t>(e.tensor.n_dims) - 1] == 1) --e.tensor.n_dims;
      all.push_back(e);
    }
    for (const auto& [runs, files] : entry.at("types").items()) {
      const std::vector<std::string> types = spread(runs, names.size());
      std::istringstream words(files.get<std::string>());
      for (std::string file; words >> file;) {
        for (size_t i = 0; i < names.size(); ++i) all[first + i].types[file] = types[i];
      }
    }
  }
  return all;
}

TEST(StockTypes, EveryModelsTensorsGetTheSameTypes) {
  const json models = json::parse(read_file(std::string(MOETIER_TEST_DATA) + "/quant/stock_types.json"));
  int compared = 0;
  for (const json& m : models) {
    const std::vector<Expected> want = expected_tensors(m);
    std::vector<MixtureTensor> tensors;
    for (const Expected& e : want) tensors.push_back(e.tensor);
    const MixtureModel model{m.at("architecture"), m.at("layers"), m.at("heads"), m.at("kv_heads"), m.at("experts")};
    for (const FileTypeInfo& file : known_file_types()) {
      if (file.file_type == FileType::f32) continue;  // the stock models are f32
      const std::vector<TypeChoice> got = choose_types(file.file_type, model, tensors);
      for (size_t i = 0; i < want.size(); ++i) {
        const auto found = want[i].types.find(std::string(file.name));
        const std::string type = found == want[i].types.end() ? "-" : found->second;
        EXPECT_EQ(got[i].keep ? "-" : type_name(got[i].type), type)
            << model.architecture << " of " << model.layers << " layers, " << file.name << ", " << tensors[i].name;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 20000);
}

}  // namespace
}  // namespace moetier
