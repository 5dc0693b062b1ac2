// Commands with a history in PostgreSQL.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/cli/testing.h"
#include "tests/db/postgres_server.h"

namespace diapason {
namespace {

class PostgresCli : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    setenv("XDG_STATE_HOME", Path("state").c_str(), 1);
    name_ = PostgresServer::Get().Uri("cli");
    // The server takes everybody: a password shows where it must not.
    uri_ = name_;
    uri_.replace(uri_.find("diapason@"), 9, "diapason:hush@");
  }
  void TearDown() override {
    unsetenv("XDG_STATE_HOME");
    CliTest::TearDown();
  }
  static std::string Everything(const CliResult& result) { return result.out + result.err; }

  const std::vector<std::string> gemm_ = {"gemm", "--m", "32", "--n", "32", "--k", "32"};
  std::string name_, uri_;
};

TEST_F(PostgresCli, TunesBuildsAndCopiesWithoutShowingThePassword) {
  const auto with = [&](const std::string& command, std::vector<std::string> rest) {
    rest.insert(rest.begin(), gemm_.begin(), gemm_.end());
    rest.insert(rest.begin(), command);
    return Cli(rest);
  };
  const CliResult tuned = with("tune", {"--target", "cpu -num-cores=1", "--trials", "3", "--history", uri_});
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  EXPECT_TRUE(absl::StrContains(tuned.out, name_)) << tuned.out;  // of the command that comes next
  const CliResult built =
      with("build", {"--target", "cpu -num-cores=1", "--history=" + uri_, "--out", Path("package")});
  ASSERT_EQ(built.code, 0) << built.err;
  EXPECT_TRUE(absl::StrContains(built.out, "1 with the best record")) << built.out;

  const CliResult copied = Cli({"history", "copy", uri_, Path("copy.db")});
  EXPECT_EQ(copied.out, absl::StrCat("copied 3 records to ", Path("copy.db"), "; 0 were there already\n"));
  const CliResult again = Cli({"history", "copy", Path("copy.db"), uri_});
  EXPECT_EQ(again.out, absl::StrCat("copied 0 records to ", name_, "; 3 were there already\n"));
  const CliResult exported = Cli({"history", "export", uri_}), copy = Cli({"history", "export", Path("copy.db")});
  EXPECT_EQ(exported.out, copy.out);
  EXPECT_TRUE(absl::StrContains(exported.out, "diapason tune gemm")) << exported.out;
  EXPECT_EQ(Cli({"history", "check", uri_}).out, "ok, 3 records\n");
  EXPECT_EQ(Cli({"query", "--history", uri_, "--json"}).json()["records"].size(), 1u);
  const CliResult unknown = Cli({"explain", "--history", uri_, "--record", "99"});
  EXPECT_EQ(unknown.err, absl::StrCat("error: history '", name_, "' has no record 99; 'diapason query --history ",
                                      name_, "' lists the best ones with their ids\n"));
  for (const CliResult& result : {tuned, built, copied, again, exported, unknown})
    EXPECT_FALSE(absl::StrContains(Everything(result), "hush")) << Everything(result);
  EXPECT_FALSE(absl::StrContains(Cli({"query", "--help"}, "", {{"DIAPASON_HISTORY", uri_}}).out, "hush"));
}

TEST_F(PostgresCli, ADatabaseThatIsNotThereIsOneSentence) {
  const std::string none = absl::StrCat("postgresql://me:hush@/d?host=", Path("nowhere"));
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"query", "--history", none}, std::vector<std::string>{"history", "info", none},
        std::vector<std::string>{"report", "--history", none, "--out", Path("r.html")}}) {
    const CliResult result = Cli(command);
    EXPECT_EQ(result.code, 1);
    EXPECT_TRUE(absl::StartsWith(
        result.err, absl::StrCat("error: history 'postgresql://me@/d?host=", Path("nowhere"), "' cannot be reached (")))
        << result.err;
    EXPECT_TRUE(absl::EndsWith(result.err, "); start the server, or correct the URI\n")) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1);
  }
}

}  // namespace
}  // namespace diapason
