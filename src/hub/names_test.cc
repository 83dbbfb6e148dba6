#include "hub/names.h"

#include <gtest/gtest.h>

#include "io/test_files.h"

namespace mlxlm::hub {
namespace {

using io::thrown_by;

TEST(Names, RepositoriesOfTheHub) {
  for (const char* good : {"mlx-community/Qwen3-4B-4bit", "gpt2", "a/b", "A_b/c.d", "org/x-1.5_b", "0/1"}) {
    EXPECT_TRUE(is_repo_id(good)) << good;
  }
  EXPECT_TRUE(is_repo_id(std::string(48, 'a') + "/" + std::string(47, 'b')));
}

TEST(Names, NothingThatCouldLeaveTheCache) {
  for (const char* bad : {"",       "/",     "a/",   "/a",   "a//b",  "a/b/c",  "..",      "../x",   "x/..", "a/..b",
                          "a..b/c", ".",     "./a",  "a/.",  "~/m",   ".git/a", "a/b.git", "a--b/c", "-a/b", "a/b-",
                          "a/b.",   "a b/c", "a\\b", "C:/x", "a/b?x", "a/b#x",  "a/b%2e",  "a/b\n",  "ü/x"}) {
    EXPECT_FALSE(is_repo_id(bad)) << bad;
  }
  EXPECT_FALSE(is_repo_id(std::string("a/b\0c", 5)));
  EXPECT_FALSE(is_repo_id(std::string(97, 'a')));
  const auto thrown = thrown_by([] { require_repo_id("../../etc"); });
  EXPECT_EQ(thrown.kind, ErrorKind::invalid_value);
  EXPECT_NE(thrown.message.find("'../../etc'"), std::string::npos);
}

TEST(Names, RevisionsAsGitHasThem) {
  for (const char* good : {"main", "refs/pr/1", "v1.0", "feature/x_y-z", "0123456789abcdef0123456789abcdef01234567"}) {
    EXPECT_EQ(thrown_by([&] { require_revision(good); }).message, "") << good;
  }
  for (const char* bad :
       {"",   "/main", "main/", "a//b", "../main", "a/../b", ".hidden", "a/.b",   "-x",   "a b", "a~1",
        "a^", "a:b",   "a?",    "a*",   "a[",      "a\\b",   "a@{1}",   "a.lock", "a\nb", "a."}) {
    EXPECT_EQ(thrown_by([&] { require_revision(bad); }).kind, ErrorKind::invalid_value) << bad;
  }
}

TEST(Names, FilesStayInsideTheRepository) {
  for (const char* good : {"config.json", "a/b/c.json", ".gitattributes", "..x", "x..", "a b.json", "ü.txt"}) {
    EXPECT_TRUE(is_safe_file_name(good)) << good;
  }
  for (const char* bad :
       {"", "/etc/passwd", "../x", "a/../../x", "a/..", "./a", "a/./b", "a//b", "a/", "a\\..\\b", "a\nb"}) {
    EXPECT_FALSE(is_safe_file_name(bad)) << bad;
  }
  EXPECT_FALSE(is_safe_file_name(std::string("a\0b", 3)));
  EXPECT_FALSE(is_safe_file_name(std::string(256, 'a')));
}

TEST(Names, BlobsAreNamedByPlainWords) {
  EXPECT_TRUE(is_safe_etag("a9993e364706816aba3e25717850c26c9cd0d89d"));
  EXPECT_TRUE(is_safe_etag("abc-1"));
  for (const char* bad : {"", ".", "..", "a/b", ".x", "a b", "\"x\""}) EXPECT_FALSE(is_safe_etag(bad)) << bad;
}

TEST(Names, FolderAndAddress) {
  EXPECT_EQ(cache_folder_name("org/name"), "models--org--name");
  EXPECT_EQ(cache_folder_name("gpt2"), "models--gpt2");
  EXPECT_EQ(url_encoded("a b/ü?.json", true), "a%20b/%C3%BC%3F.json");
  EXPECT_EQ(url_encoded("refs/pr/1", false), "refs%2Fpr%2F1");
  EXPECT_TRUE(is_commit_hash("0123456789abcdef0123456789abcdef01234567"));
  EXPECT_FALSE(is_commit_hash("0123456789ABCDEF0123456789abcdef01234567"));
  EXPECT_FALSE(is_commit_hash("0123456"));
}

}  // namespace
}  // namespace mlxlm::hub
