// More connections than the process may have files for, from somebody without credentials. gRPC's own listener stops
// accepting for good then.
#include "tests/attacks/attack_fixture.h"
#include "worker/rpc/listener.h"

namespace diapason {
namespace {

class ConnectionsAttack : public AttackTest {
 protected:
  void SetUp() override {
    AttackTest::SetUp();
    ASSERT_GE(RaiseOpenFileLimit(), 3000u) << "this test itself needs files";
  }
  void TearDown() override {
    CloseAll();
    AttackTest::TearDown();
  }
  void Open(const std::string& address, int count) {
    for (int i = 0; i < count; ++i)
      if (const int fd = Connect(address); fd >= 0) open_.push_back(fd);
  }
  void CloseAll() {
    for (int fd : open_) close(fd);
    open_.clear();
  }
  static int64_t SoftLimit(pid_t pid) {
    std::istringstream lines(ReadText("/proc/" + std::to_string(pid) + "/limits"));
    for (std::string line; std::getline(lines, line);)
      if (line.rfind("Max open files", 0) == 0) return std::stoll(line.substr(15));
    return 0;
  }

  std::vector<int> open_;
};

TEST_F(ConnectionsAttack, TheSoftLimitOfFilesIsRaised) {
  auto service = Serve({}, OwnLoopback(), LimitOpenFiles(1024, 4096));
  Process tracker({"tracker", "--listen", OwnLoopback()}, Path("tracker"), LimitOpenFiles(1024, 4096));
  for (const Process* process : std::initializer_list<const Process*>{service.get(), &tracker}) {
    const std::string address = process->Address();
    EXPECT_EQ(SoftLimit(process->pid()), 4096);
    Open(address, 1100);
    EXPECT_EQ(open_.size(), 1100u);
    EXPECT_TRUE(IsHealthy(address)) << process->err();  // while they are there
    EXPECT_GE(OpenFiles(process->pid()), 1100);
    CloseAll();
  }
}

TEST_F(ConnectionsAttack, AFloodKeepsNobodyOutAndIsOverWhenItEnds) {
  auto service = Serve({"--metrics", "127.0.0.1:0"}, OwnLoopback(), LimitOpenFiles(1024, 1024));
  Process tracker({"tracker", "--listen", OwnLoopback()}, Path("tracker"), LimitOpenFiles(1024, 1024));
  for (const Process* process : std::initializer_list<const Process*>{service.get(), &tracker}) {
    const std::string address = process->Address();
    ASSERT_TRUE(IsHealthy(address)) << process->err();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (std::chrono::steady_clock::now() < until) {
      Open(address, 100);
      if (open_.size() > 1100) CloseAll();
      EXPECT_LT(OpenFiles(process->pid()), 1000);
    }
    // Others come in meanwhile.
    Open(address, 1100);
    const int other = Connect(address, "127.77.0.1");
    ASSERT_GE(other, 0);
    EXPECT_TRUE(SpeaksHttp2(other));
    close(other);
    CloseAll();
    EXPECT_TRUE(IsHealthy(address, 5)) << process->err();
    EXPECT_NE(process->err().find(" warning connection_refused peer=127."), std::string::npos) << process->err();
    EXPECT_NE(process->err().find(" limit=768 limit_per_address=384 "), std::string::npos) << process->err();
  }
}

// Connected, and then silent: no handshake ever comes.
TEST_F(ConnectionsAttack, HalfOpenConnectionsAreClosed) {
  auto service = Serve();
  const std::string address = service->Address();
  const int64_t files = OpenFiles(service->pid());
  Open(address, 20);
  const auto began = std::chrono::steady_clock::now();
  for (int fd : open_) {
    pollfd ready{fd, POLLIN | POLLRDHUP, 0};
    char byte = 0;
    // The server may greet first; then it closes.
    do {
      ASSERT_EQ(poll(&ready, 1, 20000), 1)
          << "still open after " << (std::chrono::steady_clock::now() - began).count() / 1e9 << " s";
    } while (recv(fd, &byte, 1, MSG_DONTWAIT) == 1);
  }
  EXPECT_TRUE(WaitFor([&] { return OpenFiles(service->pid()) <= files + 4; }, 5)) << OpenFiles(service->pid());
}

}  // namespace
}  // namespace diapason
