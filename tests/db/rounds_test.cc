#include "db/rounds.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "db/service_tables.h"
#include "tests/db/backends.h"

namespace diapason {
namespace {

void RunSql(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  sqlite3_close(db);
}

std::vector<ProposedTrial> Round(const std::string& workload, int64_t round, int count) {
  std::vector<ProposedTrial> trials;
  for (int i = 0; i < count; ++i) {
    trials.push_back({workload, "cpu", "device", round, "tile2", {static_cast<int32_t>(round), i, -7}, std::nullopt});
    if (i == 0) trials.back().predicted = 1.5e-5;
  }
  return trials;
}

class RoundStoreTest : public BackendTest {
 protected:
  std::unique_ptr<RoundStore> Open() {
    if (GetParam() == Backend::kPostgres)
      return RoundStore::OpenShared(OpenServiceTables(Path("h.db"), PostgresOptions()).value());
    auto store = RoundStore::Open(Path("h.db.rounds"));
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }
};

// What is a file's own.
class RoundFileTest : public HistoryFolder, public testing::Test {
 protected:
  const std::string path_ = Path("h.db.rounds");
};

TEST_P(RoundStoreTest, GivesBackWhatWasAddedInItsOrder) {
  {
    const auto store = Open();
    ASSERT_TRUE(store->Add("run", Round("b", 1, 2)).ok());
    ASSERT_TRUE(store->Add("run", Round("a", 1, 1)).ok());
    ASSERT_TRUE(store->Add("another", Round("b", 1, 1)).ok());
    ASSERT_TRUE(store->Add("run", {}).ok());
  }
  const auto store = Open();
  const auto second = Open();  // several processes
  const std::vector<ProposedTrial> trials = store->Load("run").value();
  ASSERT_EQ(trials.size(), 3u);
  EXPECT_EQ(trials[0].workload_key, "b");
  EXPECT_EQ(trials[0].target, "cpu");
  EXPECT_EQ(trials[0].device_model, "device");
  EXPECT_EQ(trials[0].sketch, "tile2");
  EXPECT_EQ(trials[0].predicted, 1.5e-5);
  EXPECT_EQ(trials[1].configuration, (std::vector<int32_t>{1, 1, -7}));
  EXPECT_EQ(trials[1].predicted, std::nullopt);
  EXPECT_EQ(trials[2].workload_key, "a");
  ASSERT_TRUE(second->Forget("run").ok());
  EXPECT_TRUE(store->Load("run")->empty());
  EXPECT_EQ(store->Load("another")->size(), 1u);
}

TEST_P(RoundStoreTest, OldRoundsOfATaskAreForgotten) {
  const auto store = Open();
  ASSERT_TRUE(store->Add("run", Round("b", 1, 1)).ok());
  for (int64_t round = 0; round <= 10; ++round) ASSERT_TRUE(store->Add("run", Round("a", round, 2)).ok());
  const std::vector<ProposedTrial> trials = store->Load("run").value();
  ASSERT_EQ(trials.size(), 9u);
  EXPECT_EQ(trials[0].workload_key, "b");
  EXPECT_EQ(trials[1].round, 7);
  EXPECT_EQ(trials.back().round, 10);
}

TEST_F(RoundFileTest, FilesThatDoNotFitAreRefused) {
  std::ofstream(path_) << std::string(5000, 'x');
  EXPECT_EQ(RoundStore::Open(path_).status(),
            absl::FailedPreconditionError("'" + path_ +
                                          "' is not a Diapason list of proposals (it is no SQLite database); "
                                          "name another file"));
  std::filesystem::remove(path_);
  RunSql(path_, "CREATE TABLE t(a)");
  EXPECT_EQ(RoundStore::Open(path_).status(),
            absl::FailedPreconditionError("'" + path_ + "' is not a Diapason list of proposals; name another history"));
  std::filesystem::remove(path_);
  ASSERT_TRUE(RoundStore::Open(path_).ok());
  RunSql(path_, "PRAGMA user_version=9");
  EXPECT_EQ(RoundStore::Open(path_).status(),
            absl::FailedPreconditionError("list of proposals '" + path_ +
                                          "' is of version 9 and this program writes version "
                                          "2; run the program that wrote it, or remove the file"));
  RunSql(path_, "PRAGMA user_version=2; INSERT INTO trials VALUES(1,'run','w','t','d',1,'s','[1,\"x\"]',NULL)");
  EXPECT_EQ(RoundStore::Open(path_).value()->Load("run").status(),
            absl::DataLossError("list of proposals '" + path_ +
                                "' is damaged (decisions are no list of integers); remove "
                                "the file: what was measured is in the history"));
  RunSql(path_, "INSERT INTO searches VALUES('run','w','t','d','{\"rounds\": 1, \"samples\": [[0]]}')");
  EXPECT_EQ(RoundStore::Open(path_).value()->LoadMemories("run").status(),
            absl::DataLossError("list of proposals '" + path_ +
                                "' is damaged (what a search remembers does not parse); "
                                "remove the file: what was measured is in the history"));
}

TEST_P(RoundStoreTest, KeepsWhatSearchesGoOnWith) {
  const BegunSearch begun{"b", "cpu", "device", 16, 40, 33};
  SearchMemory memory{"b",       "cpu",     "device", 3, {{"tile2", {1, 4}}, {"tile0", {}}, {"tile2", {-2, 8}}},
                      {"tile0"}, {"tile2"}, true};
  {
    const auto store = Open();
    EXPECT_EQ(store->Began("run", 1000).value(), 1000);
    EXPECT_EQ(store->LoadBegun("run").value(), std::nullopt);
    ASSERT_TRUE(store->Begin("run", {"a", "cpu", "device", 8, 1, 0}).ok());
    ASSERT_TRUE(store->Begin("run", begun).ok());
    ASSERT_TRUE(store->Begin("another", begun).ok());
  }
  const auto store = Open();
  EXPECT_EQ(store->Began("run", 2000).value(), 1000);
  EXPECT_EQ(store->LoadBegun("run").value(), begun);
  EXPECT_TRUE(store->LoadMemories("run")->empty());
  ASSERT_TRUE(store->End("run", Round("b", 3, 2), memory).ok());
  EXPECT_EQ(store->LoadBegun("run").value(), std::nullopt);
  EXPECT_EQ(store->LoadBegun("another").value(), begun);
  EXPECT_EQ(store->Load("run")->size(), 2u);
  EXPECT_EQ(store->LoadMemories("run").value(), std::vector<SearchMemory>{memory});
  memory.rounds = 4;
  memory.exhausted = false;
  ASSERT_TRUE(store->End("run", {}, memory).ok());
  EXPECT_EQ(store->LoadMemories("run").value(), std::vector<SearchMemory>{memory});
  ASSERT_TRUE(store->Forget("run").ok());
  EXPECT_TRUE(store->Load("run")->empty());
  EXPECT_TRUE(store->LoadMemories("run")->empty());
  EXPECT_EQ(store->Began("run", 2000).value(), 2000);
}

TEST_F(RoundFileTest, AFileOfVersionOneIsBroughtUpToDate) {
  {
    const auto store = RoundStore::Open(path_).value();
    ASSERT_TRUE(store->Add("run", Round("b", 1, 2)).ok());
  }
  RunSql(path_, "DROP TABLE searches; DROP TABLE begun; DROP TABLE runs; PRAGMA user_version=1");
  const auto store = RoundStore::Open(path_);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->Load("run")->size(), 2u);
  EXPECT_EQ((*store)->Began("run", 5).value(), 5);
}

DIAPASON_ON_EVERY_BACKEND(RoundStoreTest);

TEST(PostgresRoundsTest, DamagedRowsAreRefused) {
  const std::string uri = PostgresServer::Get().Uri("damaged_rounds");
  const auto store = RoundStore::OpenShared(OpenServiceTables(uri, PostgresOptions()).value());
  PostgresServer::Get().Execute(
      "INSERT INTO damaged_rounds.service_trials(run, workload_key, target, device_model, round, sketch, decisions) "
      "VALUES('run', 'w', 't', 'd', 1, 's', '[1,\"x\"]')");
  EXPECT_EQ(store->Load("run").status(),
            absl::DataLossError("list of proposals '" + PostgresName(uri) +
                                "' is damaged (decisions are no list of integers); delete the rows of service_trials "
                                "and service_searches: what was measured is in the history"));
}

// The answer to COMMIT may be lost with the connection: what was added is there once all the same.
TEST(PostgresRoundsTest, ConnectionsThatAreKilledLoseAndDoubleNothing) {
  const std::string uri = PostgresServer::Get().Uri("killed_rounds");
  const auto store = RoundStore::OpenShared(OpenServiceTables(uri, PostgresOptions()).value());
  std::atomic<bool> done{false};
  std::thread killer([&] {
    while (!done) {
      PostgresServer::Get().Execute(
          "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'diapason'");
      usleep(7000);
    }
  });
  std::vector<std::string> added;
  for (int i = 0; i < 40; ++i) {
    const std::string workload = "w" + std::to_string(i);
    const absl::Status status = store->Add("run", Round(workload, 1, 3));
    // Unlucky more often than it tries again: the caller learns of it, and all three are there or none.
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
    if (status.ok()) added.push_back(workload);
  }
  done = true;
  killer.join();
  std::map<std::string, int> trials;
  const std::vector<ProposedTrial> loaded = store->Load("run").value();
  for (const ProposedTrial& trial : loaded) ++trials[trial.workload_key];
  for (const auto& [workload, count] : trials) EXPECT_EQ(count, 3) << workload;
  EXPECT_GT(added.size(), 0u);
  for (const std::string& workload : added) EXPECT_EQ(trials.count(workload), 1u) << workload;
}

}  // namespace
}  // namespace diapason
