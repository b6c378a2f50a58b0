// /v1/embeddings: the last hidden state of a text's tokens, pooled.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "server/api/answers.h"
#include "server/api/openai_shapes.h"
#include "server/api/prompt_input.h"
#include "server/api/service.h"

namespace moetier::server {
namespace {

constexpr size_t kMostInputs = 256;

/// Sums or takes what the pooling says, then scales to length 1, as the field does.
class Pool {
 public:
  Pool(Pooling pooling, int64_t width) : pooling_(pooling), sum_(static_cast<size_t>(width), 0.0) {}
  bool wants(size_t row, size_t rows) const {
    return pooling_ == Pooling::mean || row == (pooling_ == Pooling::first ? 0 : rows - 1);
  }
  void add(std::span<const float> state) {
    for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += static_cast<double>(state[i]);
  }
  std::vector<float> take() const {
    double squares = 0;
    for (const double x : sum_) squares += x * x;
    const double scale = squares > 0 ? 1 / std::sqrt(squares) : 0;
    std::vector<float> out;
    for (const double x : sum_) out.push_back(static_cast<float>(x * scale));
    return out;
  }

 private:
  Pooling pooling_;
  std::vector<double> sum_;
};

/// Computes one text. `until`: when the request's time is up.
std::vector<float> embed(const Service& service, const std::vector<TokenId>& tokens, Clock::time_point until) {
  Scheduler& scheduler = service.scheduler;
  const auto length = static_cast<int64_t>(tokens.size());
  if (length > scheduler.context_length()) throw ContextOverflow(length, scheduler.context_length());
  Pool pool(service.options.pooling, service.model.engine().model().hparams().width);
  Connection* const client = current_connection();
  const auto gone = [&] { return client != nullptr && client->peer_gone(); };
  const auto work = [&](Context& context) {
    SequenceState sequence = context.new_sequence();
    std::vector<BatchRow> rows;
    for (size_t i = 0; i < tokens.size(); ++i) rows.push_back({tokens[i], &sequence, pool.wants(i, tokens.size())});
    context.embed(rows, [&](int64_t, std::span<const float> state) { pool.add(state); });
  };
  try {
    scheduler.run_exclusive(work, pages_for(length), length, [&] { return Clock::now() >= until || gone(); });
  } catch (const Cancelled&) {
    if (gone()) throw ClientGone();
    throw ApiError(503, "the embeddings were not computed in the time that --request-timeout allows");
  }
  return pool.take();
}

/// The floats' bytes, little-endian, as base64.
std::string base64(const std::vector<float>& values) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](size_t k) { return i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u; };
    const unsigned group = byte(0) << 16 | byte(1) << 8 | byte(2);
    for (size_t k = 0; k < 4; ++k) {
      out += i + k > bytes.size() ? '=' : kDigits[group >> (18 - 6 * k) & 63];
    }
  }
  return out;
}

void embeddings(const Service& service, const std::string& body, httplib::Response& response) {
  const Json json = parse_body(body);
  const Fields fields(json);
  fields.text("model");
  const auto inputs = read_prompts(fields.need("input"), "input", service.model, kMostInputs);
  const bool packed = fields.choice("encoding_format", {"float", "base64"}).value_or("float") == "base64";
  const int64_t width = service.model.engine().model().hparams().width;
  if (const auto wanted = fields.integer("dimensions", 1, 1 << 24); wanted && *wanted != width) {
    bad_field("dimensions", fmt::format("dimensions must be {} for this model, or left out", width));
  }
  const double limit = service.options.defaults.time_limit;
  const auto until = limit > 0 && limit < 1e9 ? Clock::now() + seconds(limit) : Clock::time_point::max();
  Json data = Json::array();
  size_t tokens = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].empty()) bad_field(element("input", i), "an input is empty");
    const std::vector<float> values = embed(service, inputs[i], until);
    data.push_back(
        {{"object", "embedding"}, {"index", i}, {"embedding", packed ? Json(base64(values)) : Json(values)}});
    tokens += inputs[i].size();
  }
  answer(response, {{"object", "list"},
                    {"data", data},
                    {"model", service.model.name()},
                    {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}});
}

}  // namespace

void add_embedding_routes(Routes& routes) {
  for (const char* path : {"/v1/embeddings", "/embeddings"}) {
    routes.post(path, Cost::generation,
                [&service = routes.service()](const httplib::Request&, const std::string& body,
                                              httplib::Response& response) { embeddings(service, body, response); });
  }
}

}  // namespace moetier::server
