#include "worker/rpc/listener.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace diapason {
namespace {

// What the listener takes is kept open until the test closes it.
class ListenerTest : public testing::Test {
 protected:
  void TearDown() override {
    listener_.reset();
    for (int fd : taken_) close(fd);
    for (int fd : dialed_) close(fd);
  }
  absl::Status Start(const ListenerOptions& options) {
    auto started = Listener::Start(options, [this](int, int fd) {
      std::lock_guard lock(mutex_);
      taken_.push_back(fd);
    });
    if (!started.ok()) return started.status();
    listener_ = *std::move(started);
    return absl::OkStatus();
  }
  // From an address of loopback.
  void Dial(const std::string& from) {
    const std::string& address = listener_->address();
    sockaddr_in to{}, own{};
    to.sin_family = own.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    inet_pton(AF_INET, from.c_str(), &own.sin_addr);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
    ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    dialed_.push_back(fd);
  }
  bool Becomes(uint64_t accepted, uint64_t refused, size_t open) {
    for (int i = 0; i < 500; ++i) {
      const ConnectionCounts counts = listener_->counts();
      if (counts.accepted == accepted && counts.refused == refused && counts.open == open) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  std::mutex mutex_;
  std::vector<int> taken_, dialed_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(ListenerTest, ConnectionsOverTheLimitsAreClosedAndClosedOnesMakeRoom) {
  ASSERT_EQ(Start({"127.0.0.1:0", 4, 2}), absl::OkStatus());
  for (int i = 0; i < 3; ++i) Dial("127.0.0.1");
  EXPECT_TRUE(Becomes(2, 1, 2)) << "two of one address";
  for (int i = 0; i < 2; ++i) Dial("127.0.0.2");
  Dial("127.0.0.3");
  EXPECT_TRUE(Becomes(4, 2, 4)) << "four in all";
  // The one refused is told so by the end of its connection.
  pollfd ready{dialed_[2], POLLIN, 0};
  char byte = 0;
  EXPECT_EQ(poll(&ready, 1, 5000), 1);
  EXPECT_LE(recv(dialed_[2], &byte, 1, 0), 0);
  {
    std::lock_guard lock(mutex_);
    for (int fd : taken_) close(fd);
    taken_.clear();
  }
  EXPECT_TRUE(Becomes(4, 2, 0));
  Dial("127.0.0.1");
  EXPECT_TRUE(Becomes(5, 2, 1));
}

TEST_F(ListenerTest, TellsThePortThatWasChosenAndAPortInUse) {
  ASSERT_EQ(Start({"127.0.0.1:0"}), absl::OkStatus());
  const std::string address = listener_->address();
  EXPECT_NE(address, "127.0.0.1:0");
  EXPECT_EQ(Listener::Start({address}, [](int, int) {}).status(),
            absl::UnavailableError("cannot listen on '" + address +
                                   "': the port is in use or the address is not of this host"));
  EXPECT_EQ(
      Listener::Start({"192.0.2.1:0"}, [](int, int) {}).status(),
      absl::UnavailableError("cannot listen on '192.0.2.1:0': the port is in use or the address is not of this host"));
  // Once stopped, the port is free.
  listener_->Stop();
  EXPECT_TRUE(Listener::Start({address}, [](int, int) {}).ok());
}

}  // namespace
}  // namespace diapason
