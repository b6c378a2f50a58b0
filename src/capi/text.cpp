// C API: text and tokens.
#include <algorithm>

#include "capi/handles.h"

using namespace moetier;
using namespace moetier::capi;

namespace {

const Tokenizer& tokenizer_of(const moetier_model* model) {
  return need(model, "the model").engine->tokenizer();
}

}  // namespace

moetier_status moetier_tokenize(const moetier_model* model, const char* text, size_t text_size, int32_t add_special,
                                int32_t parse_special, int32_t* tokens, size_t capacity, size_t* count) {
  return guarded([&]() -> moetier_status {
    const Tokenizer& tokenizer = tokenizer_of(model);
    need(count, "the place for the number of tokens");
    const std::span<const char> bytes = need_array(text, text_size, "the text");
    const std::span<int32_t> out = need_array(tokens, capacity, "the place for the tokens");
    const std::vector<TokenId> ids =
        tokenizer.encode({bytes.data(), bytes.size()}, {add_special != 0, parse_special != 0});
    *count = ids.size();
    if (ids.size() > out.size()) {
      set_last_error("the place for the tokens is too small");
      return MOETIER_TOO_SMALL;
    }
    std::copy(ids.begin(), ids.end(), out.begin());
    return MOETIER_OK;
  });
}

moetier_status moetier_detokenize(const moetier_model* model, const int32_t* tokens, size_t count, int32_t special,
                                  char* text, size_t capacity, size_t* size) {
  return guarded([&]() -> moetier_status {
    const Tokenizer& tokenizer = tokenizer_of(model);
    need(size, "the place for the text's size");
    const std::span<char> out = need_array(text, capacity, "the place for the text");
    const std::string decoded = tokenizer.decode(need_array(tokens, count, "the list of tokens"), special != 0);
    *size = decoded.size();
    if (decoded.size() + 1 > out.size()) {
      set_last_error("the place for the text is too small");
      return MOETIER_TOO_SMALL;
    }
    std::copy(decoded.begin(), decoded.end(), out.begin());
    out[decoded.size()] = '\0';
    return MOETIER_OK;
  });
}

moetier_status moetier_stream_new(const moetier_model* model, int32_t special, moetier_stream** stream) {
  return guarded([&] {
    const Tokenizer& tokenizer = tokenizer_of(model);
    need(stream, "the place for the stream");
    *stream = new moetier_stream{model->engine, StreamDecoder(tokenizer, special != 0), special != 0, {}};
    return MOETIER_OK;
  });
}

void moetier_stream_free(moetier_stream* stream) {
  delete stream;
}

moetier_status moetier_stream_push(moetier_stream* stream, int32_t token, const char** text) {
  return guarded([&] {
    need(stream, "the stream");
    need(text, "the place for the text");
    stream->text = stream->decoder.push(token);
    *text = stream->text.c_str();
    return MOETIER_OK;
  });
}

moetier_status moetier_stream_finish(moetier_stream* stream, const char** text) {
  return guarded([&] {
    need(stream, "the stream");
    need(text, "the place for the text");
    stream->text = stream->decoder.finish();
    stream->decoder = StreamDecoder(stream->engine->tokenizer(), stream->special);
    *text = stream->text.c_str();
    return MOETIER_OK;
  });
}
