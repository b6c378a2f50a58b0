#include "server/model_id.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "io/read_at.h"

namespace moetier {
namespace {

constexpr size_t kSample = 4096;  // bytes of each tensor

class Sha256 {
 public:
  Sha256() : state_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    if (state_ == nullptr || EVP_DigestInit_ex(state_.get(), EVP_sha256(), nullptr) != 1) broken();
  }
  void add(const void* data, size_t bytes) {
    if (EVP_DigestUpdate(state_.get(), data, bytes) != 1) broken();
  }
  void add(uint64_t number) { add(&number, sizeof number); }
  void add(std::string_view text) {
    add(static_cast<uint64_t>(text.size()));
    add(text.data(), text.size());
  }
  std::array<uint8_t, 32> finish() {
    std::array<uint8_t, 32> digest{};
    if (EVP_DigestFinal_ex(state_.get(), digest.data(), nullptr) != 1) broken();
    return digest;
  }

 private:
  [[noreturn]] static void broken() { fail("OpenSSL cannot compute SHA-256; is its configuration damaged?"); }
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> state_;
};

void add_file(Sha256& hash, const ReadFile& file, uint64_t bytes) {
  std::vector<char> buffer(size_t{1} << 20);
  for (uint64_t at = 0; at < bytes;) {
    const size_t n =
        read_at(file, {buffer.data(), static_cast<size_t>(std::min<uint64_t>(buffer.size(), bytes - at))}, at);
    if (n == 0) return;
    hash.add(buffer.data(), n);
    at += n;
  }
}

}  // namespace

std::string ModelId::hex() const {
  std::string text;
  for (const uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

ModelId identify(Context& context) {
  Engine& engine = context.engine();
  const GgufFile& model = engine.file();
  Sha256 hash;
  hash.add(std::string_view("moetier model 1"));
  for (const std::string& spec : engine.options().overrides) hash.add(spec);
  const float dropped = context.moe() != nullptr ? context.moe()->drop_share() : 0;
  hash.add(&dropped, sizeof dropped);
  std::array<char, kSample> sample{};
  for (size_t i = 0; i < model.shards().size(); ++i) {
    const GgufFile::Shard& shard = model.shards()[i];
    const ReadFile file(shard.path, false);
    hash.add(shard.bytes);
    hash.add(shard.data_offset);
    add_file(hash, file, shard.data_offset);
    for (const TensorInfo& tensor : model.tensors()) {
      if (static_cast<size_t>(tensor.shard) != i) continue;
      const uint64_t most = std::min<uint64_t>(tensor.bytes, kSample);
      // From the middle, where a fine-tune is least likely to have left things as they were.
      hash.add(sample.data(), read_at(file, {sample.data(), most}, tensor.offset + (tensor.bytes - most) / 2));
    }
  }
  return {hash.finish()};
}

std::string sha256_of_file(const std::string& path) {
  const ReadFile file(path, false);
  Sha256 hash;
  add_file(hash, file, UINT64_MAX);
  return ModelId{hash.finish()}.hex();
}

}  // namespace moetier
