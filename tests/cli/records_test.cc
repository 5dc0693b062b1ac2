// Ready-made records: `diapason records`, and builds and searches that take them.
#include <httplib.h>
#include <stdlib.h>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/cli/testing.h"

namespace diapason {
namespace {

std::string Content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Tunes the small product once, and puts its best records into a file that builds can be shipped with.
class RecordsCommands : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    ASSERT_EQ(setenv("DIAPASON_RECORDS", "", 1), 0);
    const CliResult tuned = Cli(
        OnSmallProduct("tune", {"--history", Path("h.db"), "--trials", "12", "--min-repeat-ms", "1", "--no-check"}));
    ASSERT_EQ(tuned.code, 0) << tuned.err;
    std::filesystem::create_directories(Path("records/cpu"));
    const CliResult added = Cli({"records", "add", Path("h.db"), "--out", File(), "--keep", "1", "--json"});
    ASSERT_EQ(added.code, 0) << added.err;
    EXPECT_EQ(added.json()["record_count"], 1);
    EXPECT_EQ(added.json()["added"], 1);
  }
  void TearDown() override {
    ASSERT_EQ(setenv("DIAPASON_RECORDS", "", 1), 0);
    CliTest::TearDown();
  }

  std::string File() const { return Path("records/cpu/product.jsonl"); }
  void Ship() const { ASSERT_EQ(setenv("DIAPASON_RECORDS", Path("records").c_str(), 1), 0); }

  // What a build of the product says of its only task.
  nlohmann::json Build(std::vector<std::string> more = {}) {
    for (const char* one : {"--out", "", "--no-check", "--no-measure", "--json"}) more.emplace_back(one);
    *std::find(more.begin(), more.end(), "") = Path("package");
    const CliResult built = Cli(OnSmallProduct("build", more));
    EXPECT_EQ(built.code, 0) << built.err;
    warnings_ = built.err;
    return built.code == 0 ? built.json()["tasks"][0] : nlohmann::json{};
  }

  std::vector<nlohmann::json> Exported(const std::string& history) const {
    std::istringstream lines(Cli({"history", "export", Path(history)}).out);
    std::vector<nlohmann::json> records;
    for (std::string line; std::getline(lines, line);)
      if (nlohmann::json json = nlohmann::json::parse(line); json.contains("uuid")) records.push_back(std::move(json));
    return records;
  }

  std::string warnings_;
};

TEST_F(RecordsCommands, ABuildWithoutHistoryTakesShippedRecords) {
  EXPECT_EQ(Build()["fallback"], true);
  Ship();
  const auto task = Build();
  EXPECT_EQ(task["fallback"], false);
  EXPECT_EQ(task["record_source"], "shipped");
  EXPECT_EQ(warnings_, "");
  EXPECT_EQ(Build({"--no-shipped-records"})["fallback"], true);
  const CliResult text = Cli(OnSmallProduct("build", {"--out", Path("package"), "--no-measure"}));
  EXPECT_NE(text.out.find("1 task, 1 with the best record (1 of these shipped with Diapason)"), std::string::npos)
      << text.out << text.err;
  EXPECT_EQ(Cli({"run", Path("package"), "--check"}).code, 0);
}

TEST_F(RecordsCommands, TheUsersHistoriesComeFirstInOrder) {
  Ship();
  EXPECT_EQ(Build({"--history", Path("h.db")})["record_source"], "history");
  const auto task = Build({"--history", Path("none.db"), "--history", File(), "--history", Path("h.db")});
  EXPECT_EQ(task["record_source"], "file");
  EXPECT_NE(warnings_.find("there is no history " + Path("none.db")), std::string::npos) << warnings_;
}

TEST_F(RecordsCommands, TheOneHistoryOfABuildMustBeThere) {
  ExpectError(Cli(OnSmallProduct("build", {"--history", Path("none.db"), "--out", Path("package")})),
              "there is no history " + Path("none.db") +
                  "; make one with `diapason tune`, or leave it out to build without records of your own");
  EXPECT_FALSE(std::filesystem::exists(Path("package")));
}

TEST_F(RecordsCommands, ABuildTakesRecordsOfAWebServer) {
  httplib::Server server;
  server.Get("/a.jsonl", [&](const httplib::Request&, httplib::Response& response) {
    response.set_content(Content(File()), "application/jsonl");
  });
  const std::string server_url = absl::StrCat("http://127.0.0.1:", server.bind_to_any_port("127.0.0.1"));
  std::thread serving([&] { server.listen_after_bind(); });
  EXPECT_EQ(Build({"--history", server_url + "/a.jsonl"})["record_source"], "file");
  ExpectError(Cli(OnSmallProduct("build", {"--history", server_url + "/b.jsonl", "--out", Path("package")})),
              server_url + "/b.jsonl cannot be read: the server answered with status 404; check the address");
  server.stop();
  serving.join();
}

TEST_F(RecordsCommands, ASearchBeginsWithShippedRecords) {
  // The hashes of what four trials into a new history measured.
  const auto measured = [&](const std::string& history, const std::vector<std::string>& more) {
    std::vector<std::string> flags{"--history", Path(history), "--trials", "4", "--min-repeat-ms", "1", "--no-check"};
    flags.insert(flags.end(), more.begin(), more.end());
    const CliResult tuned = Cli(OnSmallProduct("tune", flags));
    EXPECT_EQ(tuned.code, 0) << tuned.err;
    std::set<std::string> hashes;
    for (const nlohmann::json& line : Exported(history)) hashes.insert(line["decision_hash"]);
    return hashes;
  };
  // One that a search does not begin with by itself.
  const std::set<std::string> plain = measured("plain.db", {});
  nlohmann::json other;
  for (nlohmann::json& line : Exported("h.db"))
    if (!plain.contains(line["decision_hash"]) && line.contains("timing")) other = std::move(line);
  ASSERT_FALSE(other.is_null());
  other["verified"] = "ok";
  other.erase("checksum");
  std::ofstream(File()) << other.dump() << "\n";
  Ship();
  EXPECT_TRUE(measured("with.db", {}).contains(other["decision_hash"]));
  EXPECT_FALSE(measured("without.db", {"--no-shipped-records"}).contains(other["decision_hash"]));
}

TEST_F(RecordsCommands, ListSaysWhatFilesHold) {
  const auto groups = Cli({"records", "list", File(), "--json"}).json()["groups"];
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0]["file"], File());
  EXPECT_EQ(groups[0]["target"], "cpu -num-cores=1");
  EXPECT_EQ(groups[0]["workload_count"], 1);
  EXPECT_EQ(groups[0]["network_names"], nlohmann::json::array({"gemm"})) << groups;
  EXPECT_EQ(Cli({"records", "list", File(), "--target", "cuda", "--json"}).json()["groups"].size(), 0u);
  Ship();
  EXPECT_EQ(Cli({"records", "list", "--json"}).json()["groups"], groups);
  ExpectError(Cli({"records", "list", Path("none.jsonl")}),
              Path("none.jsonl") + " cannot be read; name a file of records");
  ExpectError(
      Cli({"records", "list", Path("")}),
      "'" + Path("") + "' cannot be read to its end: it is a folder, or its disk has an error; name a file of records");
}

TEST_F(RecordsCommands, CheckFindsWhatCannotBeReplayed) {
  EXPECT_EQ(Cli({"records", "check", File()}).out, "ok, 1 record of 1 file\n");
  std::ofstream(File(), std::ios::app) << "{\"format\"\n";
  const CliResult damaged = Cli({"records", "check", File(), "--json"});
  EXPECT_EQ(damaged.code, 1);
  EXPECT_EQ(damaged.json()["ok"], false);
  ASSERT_EQ(damaged.json()["problems"].size(), 1u);
  EXPECT_EQ(std::string(damaged.json()["problems"][0]).rfind("line 2 of '" + File() + "' is damaged (", 0), 0u);
  Ship();
  const CliResult built = Cli(OnSmallProduct("build", {"--out", Path("package")}));
  EXPECT_EQ(built.code, 1);
  EXPECT_EQ(built.err.rfind("error: line 2 of '" + File() + "' is damaged (", 0), 0u) << built.err;
}

TEST_F(RecordsCommands, AddKeepsTheBestOfBothAndNoHostOrCommandLine) {
  const auto line = nlohmann::json::parse(Content(File()));
  EXPECT_EQ(line["run"]["host"], "");
  EXPECT_EQ(line["run"]["command_line"], "");
  const auto again = Cli({"records", "add", Path("h.db"), "--out", File(), "--keep", "2", "--json"}).json();
  EXPECT_EQ(again["record_count"].get<int>() - again["added"].get<int>(), 1) << again;
  EXPECT_EQ(Cli({"records", "add", Path("h.db"), "--out", File(), "--keep", "1", "--json"}).json()["record_count"], 1);
  EXPECT_EQ(nlohmann::json::parse(Content(File())), line);
  const CliResult none = Cli({"records", "add", Path("h.db"), "--out", File(), "--model", "resnet-18"});
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.err.find("has no record of network resnet-18"), std::string::npos) << none.err;
}

}  // namespace
}  // namespace diapason
