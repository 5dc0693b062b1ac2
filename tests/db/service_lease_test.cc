// The lease of services that share a history: one at a time has it, and whoever has lost it writes nothing.
#include "db/service_lease.h"

#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "db/blobs.h"
#include "db/history.h"
#include "db/rounds.h"
#include "db/service_tables.h"
#include "tests/db/postgres_server.h"
#include "tests/db/testing.h"

namespace diapason {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{60000};

class PostgresLeaseTest : public ::testing::Test {
 protected:
  PostgresLeaseTest()
      : schema_(absl::StrCat("lease", getpid(), "_", ++tests_)), uri_(PostgresServer::Get().Uri(schema_)) {}

  std::unique_ptr<ServiceLease> Open(milliseconds lasts = kLong) { return ServiceLease::Open(uri_, lasts).value(); }
  // Tries until it is taken; how long that took.
  static milliseconds TakeInTime(ServiceLease& lease, const std::string& address) {
    const auto begin = std::chrono::steady_clock::now();
    std::string holder;
    while (!lease.Take(address, holder).value() && std::chrono::steady_clock::now() < begin + std::chrono::seconds(30))
      usleep(10000);
    return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
  }
  // As a service does that takes the lease over.
  void Rob() {
    PostgresServer::Get().Execute(absl::StrCat("UPDATE ", schema_,
                                               ".service_lease SET epoch = epoch + 1, owner = "
                                               "'thief', expires_at = clock_timestamp() + INTERVAL '1 hour'"));
  }
  static ProposedTrial Trial(const std::string& workload) {
    return {workload, "cpu", "device", 1, "tile", {1}, std::nullopt};
  }
  std::unique_ptr<Database> Fenced(const ServiceLease& lease) {
    return OpenServiceTables(uri_, {kLong, kLong, lease.fence()}).value();
  }
  absl::Status Lost(const std::string& why) const {
    return absl::UnavailableError(absl::StrCat("this service does not hold the lease of history '", PostgresName(uri_),
                                               "' (", why, "); the one that does resumes its jobs"));
  }

  const std::string schema_, uri_;
  static inline int tests_ = 0;
};

TEST_F(PostgresLeaseTest, OneOfManyProcessesHasIt) {
  Open();  // the tables
  int results[2];
  ASSERT_EQ(pipe(results), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 12; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      auto lease = ServiceLease::Open(uri_, kLong);
      std::string holder;
      const bool taken = lease.ok() && (*lease)->Take("me", holder).value_or(false);
      const char byte = !lease.ok() ? 'e' : taken ? 't' : 'f';
      if (write(results[1], &byte, 1) != 1) _exit(1);
      pause();  // killed: the lease is not given back
    }
    children.push_back(child);
  }
  int taken = 0;
  for (size_t i = 0; i < children.size(); ++i) {
    char byte = 0;
    ASSERT_EQ(read(results[0], &byte, 1), 1);
    EXPECT_NE(byte, 'e');
    taken += byte == 't' ? 1 : 0;
  }
  EXPECT_EQ(taken, 1);
  for (const pid_t child : children) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  std::string holder;
  EXPECT_FALSE(Open()->Take("late", holder).value());
  EXPECT_EQ(holder, "me");
}

TEST_F(PostgresLeaseTest, ItIsRenewedAndGivenBackAtOnce) {
  constexpr milliseconds kLasts{600};
  auto first = Open(kLasts), second = Open(kLasts);
  std::string holder;
  EXPECT_FALSE(first->Holds().ok());
  ASSERT_TRUE(first->Take("h:0", holder).value());
  first->SetAddress("h:9191");
  const auto until = std::chrono::steady_clock::now() + 3 * kLasts;
  while (std::chrono::steady_clock::now() < until) {
    ASSERT_TRUE(first->Holds().ok()) << first->Holds();
    EXPECT_FALSE(second->Take("i:9191", holder).value());
    usleep(20000);
  }
  EXPECT_EQ(holder, "h:9191");
  const std::shared_ptr<const WriteFence> fence = first->fence();
  EXPECT_EQ(first->epoch(), 1);
  first.reset();
  EXPECT_TRUE(second->Take("i:9191", holder).value());
  EXPECT_EQ(second->epoch(), 2);
  EXPECT_EQ(fence->Holds(), Lost("it was given back"));
}

TEST_F(PostgresLeaseTest, ThatOfAKilledProcessExpires) {
  constexpr milliseconds kLasts{1000};
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  auto next = Open(kLasts);
  const pid_t child = fork();
  if (child == 0) {
    auto lease = ServiceLease::Open(uri_, kLasts);
    std::string holder;
    const char byte = lease.ok() && (*lease)->Take("killed", holder).value_or(false) ? 't' : 'f';
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 't');
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const milliseconds took = TakeInTime(*next, "next");
  EXPECT_GT(took, kLasts / 3);  // it was renewed a third of that ago at most
  EXPECT_LT(took, milliseconds(20000));
  EXPECT_TRUE(next->Holds().ok());
}

TEST_F(PostgresLeaseTest, WhoHasLostItWritesNothing) {
  auto lease = Open();
  std::string holder;
  ASSERT_TRUE(lease->Take("h:1", holder).value());
  const auto rounds = RoundStore::OpenShared(Fenced(*lease));
  BlobStore blobs(Fenced(*lease));
  HistoryOptions options;
  options.fence = lease->fence();
  const auto history = History::Open(uri_, HistoryMode::kCreate, options).value();
  const std::string file = absl::StrCat(PostgresServer::Get().folder(), "/", schema_);
  WriteFile(file, "content");
  ASSERT_TRUE(rounds->Add("run", {Trial("w")}).ok());
  ASSERT_TRUE(history->Append({TimedRecord()}).ok());
  ASSERT_TRUE(blobs.Put("a", file).ok());
  ASSERT_TRUE(lease->Holds().ok());

  Rob();
  // The first that looks learns it; from then on nobody asks the database.
  const absl::Status lost = Lost("another service has taken it over");
  EXPECT_EQ(rounds->Add("run", {Trial("v")}), lost);
  EXPECT_EQ(history->Append({TimedRecord()}).status(), lost);
  EXPECT_EQ(blobs.Put("b", file), lost);
  EXPECT_EQ(blobs.Erase("a"), lost);
  EXPECT_EQ(lease->Holds(), lost);
  EXPECT_EQ(rounds->Load("run").value().size(), 1u);
  EXPECT_EQ(history->Info().value().records, 1);
  EXPECT_EQ(blobs.List().value().size(), 1u);
  // It has nothing to give back.
  lease.reset();
  EXPECT_FALSE(Open()->Take("h:2", holder).value());
}

// What had begun when the lease was taken over is rolled back or was before it: nothing is seen to appear afterwards.
TEST_F(PostgresLeaseTest, ATransactionThatStandsStillIsRolledBack) {
  constexpr milliseconds kLasts{1000};
  auto lease = Open(kLasts);
  std::string holder;
  ASSERT_TRUE(lease->Take("h:1", holder).value());
  auto db = OpenServiceTables(uri_, {kLasts, kLasts, lease->fence()}).value();
  auto transaction = Transaction::Begin(db.get(), /*for_writing=*/true);
  ASSERT_TRUE(transaction.ok()) << transaction.status();
  ASSERT_TRUE(db->Exec("INSERT INTO service_runs VALUES('run', 1)").ok());
  // Others wait for it, at most so long.
  auto other = OpenServiceTables(uri_, {milliseconds(20000), milliseconds(0), nullptr}).value();
  auto next = Transaction::Begin(other.get(), /*for_writing=*/true);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(other->QueryInt("SELECT COUNT(*) FROM service_runs").value(), 0);
  EXPECT_TRUE(absl::IsUnavailable(transaction->Commit()));
}

TEST_F(PostgresLeaseTest, ARestartOfTheServerIsSurvived) {
  auto lease = Open(kLong);
  std::string holder;
  ASSERT_TRUE(lease->Take("h:1", holder).value());
  const auto rounds = RoundStore::OpenShared(Fenced(*lease));
  PostgresServer::Get().Stop();
  absl::Status added;
  std::thread adder([&] { added = rounds->Add("run", {Trial("w")}); });
  usleep(300000);
  PostgresServer::Get().Start();
  adder.join();
  EXPECT_EQ(added, absl::OkStatus());
  EXPECT_TRUE(lease->Holds().ok()) << lease->Holds();
  EXPECT_EQ(rounds->Load("run").value().size(), 1u);
}

TEST_F(PostgresLeaseTest, WhoDoesNotReachTheDatabaseInTimeHasLostIt) {
  constexpr milliseconds kLasts{1000};
  auto lease = Open(kLasts);
  std::string holder;
  ASSERT_TRUE(lease->Take("h:1", holder).value());
  const auto rounds = RoundStore::OpenShared(Fenced(*lease));
  PostgresServer::Get().Stop();
  const absl::Status late = rounds->Add("run", {Trial("w")});
  PostgresServer::Get().Start();
  EXPECT_TRUE(absl::StartsWith(late.message(), absl::StrCat("this service does not hold the lease of history '",
                                                            PostgresName(uri_), "' (it was not renewed in time")))
      << late;
  EXPECT_TRUE(RoundStore::OpenShared(OpenServiceTables(uri_, PostgresOptions()).value())->Load("run")->empty());
  // Nothing that was over begins again, though nobody has taken it.
  usleep(500000);
  EXPECT_FALSE(lease->Holds().ok());
  lease.reset();
  auto next = Open(kLong);
  TakeInTime(*next, "h:2");
  EXPECT_TRUE(next->Holds().ok());
}

TEST_F(PostgresLeaseTest, NewerTablesAreRefused) {
  Open();
  PostgresServer::Get().Execute(absl::StrCat("UPDATE ", schema_, ".service_version SET version = 2"));
  EXPECT_EQ(ServiceLease::Open(uri_, kLong).status(),
            absl::FailedPreconditionError(absl::StrCat("the tables of services in history '", PostgresName(uri_),
                                                       "' are of version 2, newer than this program's 1; use a newer "
                                                       "diapason")));
}

}  // namespace
}  // namespace diapason
