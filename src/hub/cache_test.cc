#include "hub/cache.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "hub/net.h"
#include "io/test_files.h"

namespace mlxlm::hub {
namespace {

namespace fs = std::filesystem;

const std::string kCommit(40, '1');

std::string etag_of(std::string_view content, bool large) {
  BlobDigest digest(std::string(large ? 64 : 40, '0'), content.size());
  digest.update(content);
  return digest.hex();
}

class Cache : public testing::Test {
 protected:
  RepoFile file(const std::string& path, const std::string& content, bool large = false) {
    RepoFile out;
    out.path = path;
    out.size = static_cast<int64_t>(content.size());
    out.etag = out.git_oid = etag_of(content, large);
    out.large = large;
    return out;
  }
  RepoFile put(const std::string& path, const std::string& content, bool large = false) {
    RepoFile out = file(path, content, large);
    cache_.prepare();
    io::write_text_file(cache_.blob(out.etag), content);
    cache_.make_pointer(kCommit, out);
    return out;
  }
  bool intact(const RepoFile& f, int64_t* read = nullptr) {
    return cache_.is_intact(cache_.blob(f.etag), f, {}, [read](int64_t n) {
      if (read != nullptr) *read += n;
    });
  }

  io::TempFolder folder_;
  RepoCache cache_{folder_.path(), "org/name"};
};

TEST_F(Cache, LaidOutAsHuggingfaceHubDoes) {
  const RepoFile config = put("config.json", "{}");
  put("sub/x.json", "[]");
  // git's own name for a file with these two bytes
  EXPECT_EQ(config.etag, "9e26dfeeb6e641a33dae4961196235bdb965b21b");
  const std::string root = folder_.file("models--org--name");
  EXPECT_EQ(fs::read_symlink(root + "/snapshots/" + kCommit + "/config.json"), "../../blobs/" + config.etag);
  EXPECT_EQ(io::read_text_file(root + "/snapshots/" + kCommit + "/sub/x.json"), "[]");
  EXPECT_EQ(cache_.lock("x"), folder_.file(".locks/models--org--name/x.lock"));
  EXPECT_TRUE(
      io::read_text_file(folder_.file("CACHEDIR.TAG")).starts_with("Signature: 8a477f597d28d172789f06886806bc55"));
}

TEST_F(Cache, References) {
  EXPECT_EQ(cache_.commit_of("main"), std::nullopt);
  cache_.keep_commit("main", kCommit);
  cache_.keep_commit("refs/pr/1", kCommit);
  EXPECT_EQ(cache_.commit_of("main"), kCommit);
  EXPECT_EQ(cache_.commit_of("refs/pr/1"), kCommit);
  EXPECT_EQ(cache_.commit_of(kCommit), kCommit);
  io::write_text_file(cache_.folder() + "/refs/main", "half a comm");
  EXPECT_EQ(cache_.commit_of("main"), std::nullopt);
}

TEST_F(Cache, TreeIsKeptAndADamagedOneForgotten) {
  RepoTree tree;
  tree["config.json"] = file("config.json", "{}");
  EXPECT_FALSE(cache_.tree(kCommit));
  cache_.keep_tree(kCommit, tree);
  ASSERT_TRUE(cache_.tree(kCommit));
  EXPECT_EQ(tree_to_json(*cache_.tree(kCommit)), tree_to_json(tree));
  io::write_text_file(cache_.folder() + "/trees/" + kCommit + ".json", "{\"format_version\": 1, \"fil");
  EXPECT_FALSE(cache_.tree(kCommit));
}

TEST_F(Cache, DamageIsFound) {
  for (const bool large : {false, true}) {
    const RepoFile f = put("x.json", "content", large);
    EXPECT_TRUE(intact(f));
    io::write_text_file(cache_.blob(f.etag), "c0ntent");
    EXPECT_FALSE(intact(f)) << "the same length";
    io::write_text_file(cache_.blob(f.etag), "conte");
    EXPECT_FALSE(intact(f));
    fs::remove(cache_.blob(f.etag));
    EXPECT_FALSE(intact(f));
    EXPECT_FALSE(cache_.has_pointer(kCommit, f)) << "a link to nothing";
  }
}

TEST_F(Cache, LargeFilesAreReadOnceUntilTheyChange) {
  const std::string content(3 << 20, 'x');
  const RepoFile f = put("model.safetensors", content, true);
  int64_t read = 0;
  EXPECT_TRUE(cache_.needs_reading(cache_.blob(f.etag), f));
  EXPECT_TRUE(intact(f, &read));
  EXPECT_EQ(read, f.size);
  EXPECT_FALSE(cache_.needs_reading(cache_.blob(f.etag), f));
  EXPECT_TRUE(cache_.is_intact(cache_.pointer(kCommit, f.path), f, {}, [&](int64_t n) { read += n; }));
  EXPECT_EQ(read, f.size) << "through the link it is the same file";
  std::string damaged = content;
  damaged[2 << 20] = 'y';
  io::write_text_file(cache_.blob(f.etag), damaged);
  EXPECT_TRUE(cache_.needs_reading(cache_.blob(f.etag), f));
  EXPECT_FALSE(intact(f));
}

TEST_F(Cache, ReadingCanBeStopped) {
  const RepoFile f = put("model.safetensors", std::string(3 << 20, 'x'), true);
  std::stop_source stop;
  stop.request_stop();
  const auto thrown = io::thrown_by([&] { cache_.is_intact(cache_.blob(f.etag), f, stop.get_token()); });
  EXPECT_EQ(thrown.kind, ErrorKind::cancelled);
}

TEST_F(Cache, PointersAreReplaced) {
  const RepoFile old = put("config.json", "{}");
  RepoFile now = file("config.json", "{\"a\": 1}");
  io::write_text_file(cache_.blob(now.etag), "{\"a\": 1}");
  EXPECT_TRUE(cache_.has_pointer(kCommit, old));
  EXPECT_FALSE(cache_.has_pointer(kCommit, now));
  cache_.make_pointer(kCommit, now);
  EXPECT_TRUE(cache_.has_pointer(kCommit, now));
  // Where there are no links a file stands in the snapshot itself.
  fs::remove(cache_.pointer(kCommit, "config.json"));
  io::write_text_file(cache_.pointer(kCommit, "config.json"), "{}");
  EXPECT_TRUE(cache_.has_pointer(kCommit, old));
}

TEST_F(Cache, FilesOfASnapshotWithoutATree) {
  const RepoFile config = put("config.json", "{}");
  const RepoFile other = put("sub/x.json", "[]");
  io::write_text_file(cache_.pointer(kCommit, "plain.txt"), "abc");
  const RepoTree tree = cache_.files_of_snapshot(kCommit);
  ASSERT_EQ(tree.size(), 3u);
  EXPECT_EQ(tree.at("config.json").etag, config.etag);
  EXPECT_EQ(tree.at("sub/x.json").etag, other.etag);
  EXPECT_EQ(tree.at("plain.txt").etag, "");
  EXPECT_EQ(tree.at("plain.txt").size, 3);
  EXPECT_TRUE(cache_.files_of_snapshot(std::string(40, '2')).empty());
}

}  // namespace
}  // namespace mlxlm::hub
