// The built program's tracker, service and workers on loopback, and an attacker who speaks gRPC and raw TCP with them.
//
//   class MyAttack : public AttackTest {};
//   TEST_F(MyAttack, TheServiceSurvivesIt) {
//     auto service = Serve();                                  // or Tracker(...), Worker(...) of FleetCli
//     auto stub = v1::Tuning::NewStub(Dial(service->Address()));
//     ... attack ...
//     EXPECT_TRUE(IsHealthy(service->Address())) << service->err();
//   }
#pragma once

#include <arpa/inet.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cli/fleet_fixture.h"
#include "tests/paths.h"
#include "worker/rpc/channel.h"
#include "worker/rpc/security.h"

namespace diapason {

class AttackTest : public FleetCli {
 protected:
  // `diapason serve` with the history h.db and a tracker of its own, which workers reach at the same address.
  std::unique_ptr<Process> Serve(std::vector<std::string> more = {}, const std::string& listen = OwnLoopback(),
                                 const Process::InChild& in_child = nullptr) {
    std::vector<std::string> args = {"serve", "--listen", listen, "--history", Path("h.db")};
    args.insert(args.end(), more.begin(), more.end());
    return std::make_unique<Process>(args, Path("service" + std::to_string(++services_)), in_child);
  }

  // Makes Path("certs"): certificates of all peers, certs/tokens for --tokens and certs/ROLE.token
  // (deploy/make-certs.sh).
  void MakeCertificates(const std::string& more = "") {
    ASSERT_EQ(
        std::system(
            ("bash " + TEST_PATH(DIAPASON_MAKE_CERTS) + " " + Path("certs") + " " + more + " >/dev/null").c_str()),
        0);
  }
  // --tls-cert, --tls-key and --tls-ca of `peer`: "tracker", "service", "worker", "client".
  std::vector<std::string> Tls(const std::string& peer) const {
    return {"--tls-cert", Path("certs/" + peer + ".crt"),
            "--tls-key",  Path("certs/" + peer + ".key"),
            "--tls-ca",   Path("certs/ca.crt")};
  }
  // A file with tokens for --tokens: "reader-token-0001", "submitter-token-0001", "worker-token-0001",
  // "admin-token-0001". Loopback needs no certificates for them.
  std::string Tokens() const {
    std::ofstream file(Path("tokens"));
    for (const char* role : {"reader", "submitter", "worker", "admin"})
      file << role << " " << Token(role) << " " << role << "\n";
    file.close();
    std::filesystem::permissions(Path("tokens"),
                                 std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    return Path("tokens");
  }
  static std::string Token(const std::string& role) { return role + "-token-0001"; }

  // A connection of its own, in plain text. `role`: whose token of Tokens() is shown; empty: none.
  static std::shared_ptr<grpc::Channel> Dial(const std::string& address, const std::string& role = "") {
    auto credentials = std::make_shared<ClientCredentials>();
    if (!role.empty()) credentials->token = Token(role);
    return MakeChannel(address, credentials);
  }

  // A unary call with these bytes for a message, as no program of ours would send them.
  static grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                           const grpc::ByteBuffer& message, grpc::ByteBuffer* answer = nullptr, double seconds = 30) {
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
    grpc::CompletionQueue queue;
    grpc::ByteBuffer unused;
    grpc::Status status;
    auto call = stub.PrepareUnaryCall(&context, method, message, &queue);
    call->StartCall();
    call->Finish(answer != nullptr ? answer : &unused, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status;
  }
  // A message of `bytes` bytes that consists of empty submessages in field `field` (below 16).
  static grpc::ByteBuffer EmptySubmessages(int field, size_t bytes) {
    std::string text(bytes / 2 * 2, '\0');
    for (size_t i = 0; i < text.size(); i += 2) text[i] = static_cast<char>(field << 3 | 2);
    const grpc::Slice slice(text);
    return grpc::ByteBuffer(&slice, 1);
  }

  // Whether the gRPC health service says SERVING within `seconds`, over a new connection.
  static bool IsHealthy(const std::string& address, double seconds = 5) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < until) {
      if (AnswersHealthCheck(address)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }

  // Of a process: bytes of memory in use, and open files.
  static int64_t ResidentBytes(pid_t pid) {
    std::istringstream statm(ReadText("/proc/" + std::to_string(pid) + "/statm"));
    int64_t size = 0, resident = 0;
    statm >> size >> resident;
    return resident * sysconf(_SC_PAGESIZE);
  }
  static int64_t OpenFiles(pid_t pid) {
    int64_t count = 0;
    std::error_code gone;
    for (auto it = std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", gone);
         it != std::filesystem::directory_iterator(); it.increment(gone))
      ++count;
    return count;
  }

  // The most memory that it has had in use.
  static int64_t PeakBytes(pid_t pid) {
    const std::string status = ReadText("/proc/" + std::to_string(pid) + "/status");
    const size_t at = status.find("VmHWM:");
    return at == std::string::npos ? 0 : std::stoll(status.substr(at + 6)) * 1024;
  }

  // For Serve and Process: the limits of open files that the program starts with.
  static Process::InChild LimitOpenFiles(rlim_t soft, rlim_t hard) {
    return [soft, hard] {
      const rlimit limit{soft, hard};
      if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(1);
    };
  }

  // A TCP connection to "127.X.Y.Z:PORT", of this address of loopback where it is given; -1 when it is refused. The
  // caller closes it.
  static int Connect(const std::string& address, const std::string& from = "") {
    sockaddr_in to = SocketAddress(address), own = SocketAddress(from.empty() ? "0.0.0.0:0" : from + ":0");
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own) == 0 &&
        connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0)
      return fd;
    if (fd >= 0) close(fd);
    return -1;
  }

  // Whether an HTTP/2 server greets on this connection within `seconds`.
  static bool SpeaksHttp2(int fd, double seconds = 5) {
    const std::string hello("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);  // and empty SETTINGS
    if (write(fd, hello.data(), hello.size()) < 0) return false;
    pollfd ready{fd, POLLIN, 0};
    char frame[9];
    return poll(&ready, 1, static_cast<int>(seconds * 1000)) == 1 && recv(fd, frame, sizeof frame, MSG_WAITALL) == 9 &&
           frame[3] == 4;
  }

  // What http://ADDRESS/metrics (--metrics) says; empty when nobody answers.
  static std::string Metrics(const std::string& address) {
    const int fd = Connect(address);
    if (fd < 0) return "";
    const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
    std::string text;
    char part[4096];
    if (write(fd, request.data(), request.size()) > 0)
      for (ssize_t n; (n = read(fd, part, sizeof part)) > 0;) text.append(part, static_cast<size_t>(n));
    close(fd);
    return text;
  }

 private:
  static sockaddr_in SocketAddress(const std::string& address) {
    const size_t colon = address.rfind(':');
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
    inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
    return to;
  }

  // By the generic stub, since Debian has no header for grpc.health.v1. An empty request asks for the whole server; the
  // answer is `status` (field 1), and 1 is SERVING.
  static bool AnswersHealthCheck(const std::string& address) {
    grpc::ByteBuffer answer;
    const grpc::Slice empty;
    const grpc::Status status =
        Call(Dial(address), "/grpc.health.v1.Health/Check", grpc::ByteBuffer(&empty, 1), &answer, 1);
    grpc::Slice slice;
    if (!status.ok() || !answer.DumpToSingleSlice(&slice).ok()) return false;
    return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size()) == "\x08\x01";
  }

  int services_ = 0;
};

}  // namespace diapason
