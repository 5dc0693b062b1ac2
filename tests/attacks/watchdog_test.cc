// systemd's watchdog (sd_notify) hears of a tracker or service as long as its port answers, and not when it is deaf.
#include <sys/un.h>

#include "tests/attacks/attack_fixture.h"

namespace diapason {
namespace {

class WatchdogAttack : public AttackTest {
 protected:
  void SetUp() override {
    AttackTest::SetUp();
    socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    ASSERT_LT(Path("notify").size(), sizeof at.sun_path);
    Path("notify").copy(at.sun_path, sizeof at.sun_path - 1);
    ASSERT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    setenv("NOTIFY_SOCKET", Path("notify").c_str(), 1);
    setenv("WATCHDOG_USEC", "900000", 1);
  }
  void TearDown() override {
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    close(socket_);
    AttackTest::TearDown();
  }
  // The next message; empty when none comes in time.
  std::string Next(double seconds = 10) const {
    pollfd ready{socket_, POLLIN, 0};
    char text[256];
    if (poll(&ready, 1, static_cast<int>(seconds * 1000)) != 1) return "";
    const ssize_t n = recv(socket_, text, sizeof text, 0);
    return n < 0 ? "" : std::string(text, static_cast<size_t>(n));
  }
  void Forget() const {
    while (!Next(0).empty()) {
    }
  }

 private:
  int socket_ = -1;
};

TEST_F(WatchdogAttack, HearsOfAProcessThatServes) {
  MakeCertificates();
  for (const bool service : {false, true}) {
    const std::vector<std::string> tls = Tls(service ? "service" : "tracker");
    std::vector<std::string> flags = {"--tokens", Path("certs/tokens")};
    flags.insert(flags.end(), tls.begin(), tls.end());
    auto process = service ? Serve(flags) : Tracker(OwnLoopback(), flags);
    EXPECT_EQ(Next(), "READY=1") << process->err();
    for (int i = 0; i < 4; ++i) EXPECT_EQ(Next(), "WATCHDOG=1") << process->err();
    EXPECT_EQ(process->err().find("self_check_"), std::string::npos) << process->err();
    process->Signal(SIGTERM);
    EXPECT_EQ(process->Wait(), 0);
    std::string last;
    for (std::string text = Next(0); !text.empty(); text = Next(0)) last = text;
    EXPECT_EQ(last, "STOPPING=1");
  }
}

// All connections that it takes are somebody else's: nobody could ask it anything.
TEST_F(WatchdogAttack, DoesNotHearOfAProcessThatIsDeaf) {
  auto service = Serve({}, OwnLoopback(), LimitOpenFiles(128, 128));
  const std::string address = service->Address();
  EXPECT_EQ(Next(), "READY=1") << service->err();
  EXPECT_EQ(Next(), "WATCHDOG=1") << service->err();
  std::vector<int> flood;
  const auto more = [&] {
    for (const char* from : {"127.9.9.1", "127.9.9.2", "127.9.9.3"})
      for (int i = 0; i < 60; ++i)
        if (const int fd = Connect(address, from); fd >= 0) flood.push_back(fd);
  };
  ASSERT_TRUE(WaitFor(
      [&] {
        more();
        return service->err().find("self_check_failed") != std::string::npos;
      },
      20))
      << service->err();
  Forget();
  EXPECT_EQ(Next(1.5), "") << service->err();  // systemd would start it again
  for (const int fd : flood) close(fd);
  EXPECT_EQ(Next(), "WATCHDOG=1") << service->err();
}

// Without a certificate for clients it cannot ask itself: it says so, and is not taken for deaf.
TEST_F(WatchdogAttack, AProcessThatCannotAskItselfSaysSo) {
  MakeCertificates();
  const std::string command =
      "cd " + Path("certs") +
      " && openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x -keyout x.key -out "
      "x.csr && printf 'extendedKeyUsage=serverAuth\\nsubjectAltName=IP:127.0.0.1,URI:urn:diapason:role:"
      "tracker\\n' >x.ext && openssl x509 -req -in x.csr -CA ca.crt -CAkey ca.key -days 1 -extfile x.ext "
      "-set_serial 7 -out x.crt";
  ASSERT_EQ(std::system(("(" + command + ") >/dev/null 2>&1").c_str()), 0);
  auto tracker = Tracker(OwnLoopback(), Tls("x"));
  EXPECT_EQ(Next(), "READY=1") << tracker->err();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Next(), "WATCHDOG=1") << tracker->err();
  const std::string log = tracker->err();
  const size_t said = log.find("self_check_off");
  ASSERT_NE(said, std::string::npos) << log;
  EXPECT_EQ(log.find("self_check_off", said + 1), std::string::npos) << log;
  EXPECT_EQ(log.find("self_check_failed"), std::string::npos) << log;
}

}  // namespace
}  // namespace diapason
