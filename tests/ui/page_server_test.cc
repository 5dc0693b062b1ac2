// The server under many requests at once, and its sources. Addresses and headers are tested from outside
// (test_endpoints.py).
#include "ui/page_server.h"

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/db/testing.h"

namespace diapason {
namespace {

class PageServerTest : public HistoryTest {
 protected:
  void SetUp() override {
    history_ = Open(Path("h.db"));
    ASSERT_TRUE(history_->Append({TimedRecord("a", 1)}).ok());
    options_.address = "127.0.0.1:0";
    options_.history = Path("h.db");
    options_.poll_seconds = 0.01;
    options_.explain = [](int64_t record) -> absl::StatusOr<Json> {
      if (record == 1) return Json{{"id", 1}};
      return absl::NotFoundError("there is no record of that id");
    };
  }
  std::unique_ptr<PageServer> Start() {
    auto server = PageServer::Start(options_);
    EXPECT_TRUE(server.ok()) << server.status();
    return std::move(*server);
  }
  static std::unique_ptr<httplib::Client> Dial(const PageServer& server) {
    auto client = std::make_unique<httplib::Client>(server.url().substr(0, server.url().size() - 1));
    client->set_read_timeout(20);
    return client;
  }
  static Json Get(const PageServer& server, const std::string& path, int status = 200) {
    const httplib::Result result = Dial(server)->Get(path);
    EXPECT_TRUE(result) << path;
    if (!result) return Json();
    EXPECT_EQ(result->status, status) << path;
    return Json::parse(result->body);
  }
  std::unique_ptr<History> history_;
  PageOptions options_;
};

TEST_F(PageServerTest, FollowersAndReadersSeeEveryMeasurementWhileItIsStored) {
  constexpr int kFollowers = 4, kBatches = 20;
  std::atomic<int> fleets{0};
  options_.jobs = []() -> absl::StatusOr<Json> { return Json::array(); };
  options_.fleet = [&fleets]() -> absl::StatusOr<Json> { return Json{{"asked", ++fleets}}; };
  auto server = Start();
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kFollowers; ++i) {
    threads.emplace_back([&server, &done] {
      std::string text;
      size_t rows = 0, at = 0;
      Dial(*server)->Get("/api/events?after=1", [&](const char* data, size_t size) {
        text.append(data, size);
        for (size_t end; (end = text.find("\n\n", at)) != std::string::npos; at = end + 2) {
          const size_t begin = text.find("data: ", at);
          if (text.compare(at, 14, "event: change\n") != 0) continue;
          rows += Json::parse(text.substr(begin + 6, end - begin - 6))["trials"]["record"].size();
        }
        return rows < kBatches;
      });
      EXPECT_EQ(rows, static_cast<size_t>(kBatches));
      ++done;
    });
  }
  threads.emplace_back([&server, &done] {
    while (done < kFollowers) {
      EXPECT_EQ(Get(*server, "/api/history")["schema"], "diapason.page.history/2");
      EXPECT_EQ(Get(*server, "/api/fleet")["schema"], "diapason.page.fleet/2");
    }
  });
  for (int i = 0; i < kBatches; ++i) {
    ASSERT_TRUE(history_->Append({TimedRecord("a", 2 + i)}).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Get(*server, "/api/history")["trials"]["record"].size(), static_cast<size_t>(kBatches + 1));
}

TEST_F(PageServerTest, StoppingEndsStreams) {
  auto server = Start();
  std::atomic<bool> opened{false};
  bool ended = false;
  std::thread follower([&] {
    const httplib::Result result = Dial(*server)->Get(
        "/api/events?after=1", [&](const httplib::Response&) { return opened = true; },
        [](const char*, size_t) { return true; });
    ended = static_cast<bool>(result);  // whole, not cut off
  });
  while (!opened) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  server.reset();
  follower.join();
  EXPECT_TRUE(ended);
}

TEST_F(PageServerTest, ASourceThatFailsIsToldInItsDocument) {
  options_.jobs = []() -> absl::StatusOr<Json> { return absl::UnavailableError("the tracker is away"); };
  const auto server = Start();
  EXPECT_EQ(Get(*server, "/api/jobs"), (Json{{"schema", "diapason.page.jobs/2"}, {"error", "the tracker is away"}}));
  EXPECT_EQ(Get(*server, "/api/records/1"), (Json{{"schema", "diapason.page.record/2"}, {"id", 1}}));
  EXPECT_EQ(Get(*server, "/api/records/2", 404),
            (Json{{"schema", "diapason.page.error/1"}, {"error", "there is no record of that id"}}));
}

TEST_F(PageServerTest, MoreFollowersThanThreadsAreRefused) {
  options_.max_followers = 0;
  const auto server = Start();
  EXPECT_EQ(Get(*server, "/api/events?after=1", 503)["error"], "too many pages are open; this one asks again later");
}

TEST_F(PageServerTest, AHistoryThatIsGoneIsRefused) {
  options_.history = Path("none.db");
  EXPECT_EQ(PageServer::Start(options_).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace diapason
