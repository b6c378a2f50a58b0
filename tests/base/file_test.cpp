#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/error.h"

namespace moetier {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public testing::Test {
 protected:
  AtomicFileTest() {
    std::string name = (fs::temp_directory_path() / "moetier-file-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    folder_ = name;
  }
  ~AtomicFileTest() override { fs::remove_all(folder_); }
  std::string at(const char* name) const { return (folder_ / name).string(); }
  static std::string text_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

void write_whole(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

TEST_F(AtomicFileTest, AppearsWholeOnCommitAndNotBefore) {
  write_whole(at("a"), "old");
  {
    AtomicFile file(at("a"));
    file.write("new");
    EXPECT_EQ(text_of(at("a")), "old");
    EXPECT_EQ(file.written(), 3u);
    file.commit();
  }
  EXPECT_EQ(text_of(at("a")), "new");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, WithoutCommitNothingIsLeft) {
  write_whole(at("a"), "old");
  { AtomicFile(at("a")).write("half"); }
  EXPECT_EQ(text_of(at("a")), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, ALinkStaysAndWhatItNamesIsReplaced) {
  write_whole(at("real"), "old");
  fs::create_symlink("real", at("link"));
  write_whole(at("link"), "new");
  EXPECT_TRUE(fs::is_symlink(at("link")));
  EXPECT_EQ(text_of(at("real")), "new");
  fs::create_symlink("absent", at("dangling"));
  write_whole(at("dangling"), "made");
  EXPECT_TRUE(fs::is_symlink(at("dangling")));
  EXPECT_EQ(text_of(at("absent")), "made");
}

TEST_F(AtomicFileTest, APipeIsWrittenToAndStaysAPipe) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = text_of(at("pipe")); });
  write_whole(at("pipe"), "through");
  reader.join();
  EXPECT_EQ(got, "through");
  EXPECT_TRUE(fs::is_fifo(at("pipe")));
}

TEST_F(AtomicFileTest, ErrorsNameTheFile) {
  try {
    AtomicFile file(at("none") + "/a");
    FAIL() << "a folder that is not there";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("none/a"), std::string::npos);
  }
  fs::create_directory(at("folder"));
  EXPECT_THROW(AtomicFile{at("folder")}, Error);
  EXPECT_EQ(files(), 1u) << "nothing beside it is left";
}

TEST_F(AtomicFileTest, ObeysTheMask) {
  const mode_t old = ::umask(077);
  write_whole(at("private"), "x");
  ::umask(old);
  struct stat info {};
  ASSERT_EQ(::stat(at("private").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(AtomicFileTest, ReadFileHoldsToItsLimit) {
  write_whole(at("a"), "12345");
  EXPECT_EQ(read_file(at("a"), 5), "12345");
  EXPECT_THROW(read_file(at("a"), 4), Error);
  EXPECT_THROW(read_file(at("none")), Error);
}

TEST_F(AtomicFileTest, APipeIsNotMappedAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  // Whoever waits for the other end of it shall not wait for ever.
  std::thread rescue([&] {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    ::close(::open(at("pipe").c_str(), O_RDWR | O_NONBLOCK));
  });
  const auto began = std::chrono::steady_clock::now();
  EXPECT_THROW(MappedFile{at("pipe")}, Error);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(900));
  rescue.join();
}

TEST_F(AtomicFileTest, MappedFileShowsTheBytes) {
  write_whole(at("a"), "12345");
  const MappedFile mapped(at("a"));
  EXPECT_EQ(mapped.bytes().size(), 5u);
  EXPECT_EQ(mapped.bytes()[4], std::byte{'5'});
  write_whole(at("empty"), "");
  EXPECT_TRUE(MappedFile(at("empty")).bytes().empty());
  EXPECT_THROW(MappedFile{folder_.string()}, Error);
}

}  // namespace
}  // namespace moetier
