#include "base/json_shape.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace moetier {
namespace {

using Json = nlohmann::ordered_json;

std::string problem(const char* json, const Json& shape) {
  return shape_problem(Json::parse(json), shape);
}

TEST(JsonShape, KindsAreTold) {
  EXPECT_EQ(problem("3", "int"), "");
  EXPECT_EQ(problem("3.5", "number"), "");
  EXPECT_EQ(problem("3.5", "int"), "$ should be int: 3.5");
  EXPECT_EQ(problem("null", "string|null"), "");
  EXPECT_EQ(problem("true", "string|null"), "$ should be string|null: true");
  EXPECT_EQ(problem("true", "bool"), "");
  EXPECT_EQ(problem("\"stop\"", "=length|=stop"), "");
  EXPECT_EQ(problem("\"halt\"", "=length|=stop"), "$ should be =length|=stop: \"halt\"");
  EXPECT_EQ(problem("[]", "array"), "");
  EXPECT_EQ(problem("[]", "object"), "$ should be object: []");
  EXPECT_EQ(problem("[1]", "any"), "");
}

TEST(JsonShape, ThePlaceIsNamed) {
  const Json shape = {{"choices", Json::array({{{"index", "int"}, {"name?", "string"}}})}};
  EXPECT_EQ(problem(R"({"choices": [{"index": 0}, {"index": 1, "name": "x", "more": 1}], "more": 2})", shape), "");
  EXPECT_EQ(problem(R"({"choices": []})", shape), "");
  EXPECT_EQ(problem(R"({"choices": [{"index": 0}, {"index": null}]})", shape),
            "$.choices[1].index should be int: null");
  EXPECT_EQ(problem(R"({"choices": [{"index": 0, "name": 3}]})", shape), "$.choices[0].name should be string: 3");
  EXPECT_EQ(problem(R"({"choices": {}})", shape), "$.choices should be an array: {}");
  EXPECT_EQ(problem(R"({"choices": [4]})", shape), "$.choices[0] should be an object: 4");
  EXPECT_EQ(problem(R"({"choice": 1})", shape), "$ lacks choices: {\"choice\":1}");
}

TEST(JsonShape, AWrongShapeIsAnError) {
  EXPECT_THROW(problem("1", "integer"), Error);
  EXPECT_THROW(problem("1", 1), Error);
  EXPECT_THROW(problem("[1]", Json::array({"int", "int"})), Error);
}

TEST(JsonShape, LongAndBrokenTextsAreShownShort) {
  const Json text = std::string(1000, 'x') + "\xff";
  const std::string line = shape_problem(text, "int");
  EXPECT_LT(line.size(), 300u);
  EXPECT_EQ(shape_problem("\xff", "int"), "$ should be int: \"\\ufffd\"");
}

}  // namespace
}  // namespace moetier
