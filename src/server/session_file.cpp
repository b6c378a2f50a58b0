#include "server/session_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <filesystem>

#include "base/error.h"
#include "io/read_at.h"

namespace moetier {
namespace {

static_assert(std::endian::native == std::endian::little, "session files are little-endian");

constexpr std::string_view kMagic{"MTSESS\0\0", 8};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kMostTokens = uint64_t{1} << 26;

struct Header {
  std::array<char, 8> magic{};
  uint32_t version = 0, reserved = 0;
  std::array<uint8_t, 32> model{};
  uint64_t tokens = 0;
  uint64_t checksum = 0;  // FNV-1a of what stands before it, and of the tokens
};
static_assert(sizeof(Header) == 64);

uint64_t fnv(uint64_t hash, const void* data, size_t bytes) {
  const auto* at = static_cast<const uint8_t*>(data);
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3ull;
  return hash;
}

uint64_t checksum(const Header& header, std::span<const TokenId> tokens) {
  return fnv(fnv(0xcbf29ce484222325ull, &header, offsetof(Header, checksum)), tokens.data(), tokens.size_bytes());
}

/// Opening a pipe for writing would wait for a reader.
void refuse_irregular(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode))
    fail("{} cannot be written: it is not a regular file", path);
}

}  // namespace

std::string session_header(const ModelId& model, std::span<const TokenId> tokens) {
  Header header;
  std::copy(kMagic.begin(), kMagic.end(), header.magic.begin());
  header.version = kVersion;
  header.model = model.bytes;
  header.tokens = tokens.size();
  header.checksum = checksum(header, tokens);
  std::string out(reinterpret_cast<const char*>(&header), sizeof header);
  out.append(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
  return out;
}

uint64_t write_session(const std::string& path, const ModelId& model, std::span<const TokenId> tokens,
                       std::string_view state) {
  refuse_irregular(path);
  AtomicFile file(path);
  file.write(session_header(model, tokens));
  file.write(state);
  const uint64_t bytes = file.written();
  file.commit();
  return bytes;
}

uint64_t write_session(const std::string& path, const ModelId& model, std::span<const TokenId> tokens,
                       const SequenceState& state) {
  if (static_cast<int64_t>(tokens.size()) != state.length())
    fail("a sequence of {} positions cannot be saved with {} tokens", state.length(), tokens.size());
  refuse_irregular(path);
  AtomicFile file(path);
  file.write(session_header(model, tokens));
  state.save([&](std::string_view piece) { file.write(piece); });
  const uint64_t bytes = file.written();
  file.commit();
  return bytes;
}

SessionReader::SessionReader(const std::string& path, const ModelId& model) : file_(path, false) {
  Header header;
  if (bytes() < sizeof header) fail("{} is no saved session: it has only {} bytes", path, bytes());
  read(0, &header, sizeof header);
  if (std::string_view(header.magic.data(), header.magic.size()) != kMagic)
    fail("{} is no saved session (wrong magic)", path);
  if (header.version != kVersion)
    fail("{} has version {}; this program reads version {}", path, header.version, kVersion);
  if (header.model != model.bytes)
    fail("{} was saved with another model, or with other overrides: it does not fit this one", path);
  if (header.tokens > kMostTokens || header.tokens * sizeof(TokenId) > bytes() - sizeof header)
    fail("{} is cut short: it should hold {} tokens", path, header.tokens);
  tokens_.resize(header.tokens);
  read(sizeof header, tokens_.data(), tokens_.size() * sizeof(TokenId));
  if (header.checksum != checksum(header, tokens_)) fail("{} is damaged: its checksum does not match", path);
  state_at_ = sizeof header + tokens_.size() * sizeof(TokenId);
}

void SessionReader::read(uint64_t at, void* out, size_t size) const {
  if (read_at(file_, {static_cast<char*>(out), size}, at) < size)
    fail("{} cannot be read whole; was it changed meanwhile?", file_.path());
}

void SessionReader::load(SequenceState& state) const {
  uint64_t at = state_at_;
  SequenceState fresh(state.fork());
  fresh.truncate(0);
  try {
    fresh.load(bytes() - state_at_, [&](std::span<std::byte> out) {
      read(at, out.data(), out.size());
      at += out.size();
    });
  } catch (const Error& error) {
    fail("{}: {}", file_.path(), error.what());
  }
  if (fresh.length() != static_cast<int64_t>(tokens_.size()))
    fail("{} holds {} positions and {} tokens, so it is damaged", file_.path(), fresh.length(), tokens_.size());
  state = std::move(fresh);
}

void prepare_state_directory(std::string_view what, const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!error && !std::filesystem::is_directory(directory, error) && !error)
    fail("{} cannot be kept in {}: it is not a directory", what, directory);
  if (error) fail("{} cannot be kept in {}: {}", what, directory, error.message());
  if (::access(directory.c_str(), R_OK | W_OK | X_OK) != 0)
    fail("{} cannot be kept in {}: no permission to read and write there", what, directory);
}

std::string session_path(const std::string& directory, const std::string& name) {
  if (directory.empty()) usage_error("slots cannot be saved: the server was started without --slot-save-path");
  const bool odd = std::any_of(name.begin(), name.end(), [](char c) {
    return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (name.empty() || name.size() > 200 || name.front() == '.' || odd)
    usage_error("the file name of a saved slot must be a plain name without directories, 1 to 200 bytes long");
  return (std::filesystem::path(directory) / name).string();
}

}  // namespace moetier
