// Certificates of the fleet's own authority in the wrong hands: a worker's host poses as the tracker, or as a
// submitter.
#include <grpcpp/generic/async_generic_service.h>

#include <atomic>
#include <cstdio>
#include <ctime>

#include "tests/attacks/attack_fixture.h"

namespace diapason {
namespace {

class CertificatesAttack : public AttackTest {
 protected:
  static std::vector<std::string> Joined(std::vector<std::string> args, const std::vector<std::string>& more) {
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  CliResult Status(const std::string& tracker, const std::string& peer, const std::vector<std::string>& more = {}) {
    return Cli(Joined(Joined({"fleet", "status", "--tracker", tracker, "--wait-timeout", "0.3", "--json",
                              "--token-file", Path("certs/admin.token")},
                             Tls(peer)),
                      more));
  }
  // A certificate of the fleet's authority with these extensions, as somebody with an authority of his own may make it.
  void MakeCertificate(const std::string& name, const std::string& extensions) {
    const std::string command =
        "cd " + Path("certs") +
        " && openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x -keyout " + name +
        ".key -out x.csr && printf '" + extensions +
        "' >x.ext && openssl x509 -req -in x.csr -CA ca.crt -CAkey ca.key -days 1 -extfile x.ext "
        "-set_serial 7 -out " +
        name + ".crt";
    ASSERT_EQ(std::system(("(" + command + ") >/dev/null 2>&1").c_str()), 0);
  }
  // The serial number of the certificate that is shown to `peer`; empty: none.
  std::string ShownSerial(const std::string& address, const std::string& peer) {
    const std::string command = "openssl s_client -connect " + address + " -cert " + Path("certs/" + peer + ".crt") +
                                " -key " + Path("certs/" + peer + ".key") +
                                " </dev/null 2>/dev/null | openssl x509 -noout -serial 2>/dev/null";
    FILE* pipe = popen(command.c_str(), "r");
    std::string text;
    for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) text += static_cast<char>(c);
    pclose(pipe);
    return text;
  }
  // Until what the metric says.
  static double DaysLeft(const std::string& metrics) {
    const std::string text = Metrics(metrics), name = "\ndiapason_certificate_expiry_timestamp_seconds ";
    const size_t at = text.find(name);
    if (at == std::string::npos) return -1;
    return (std::stod(text.substr(at + name.size())) - static_cast<double>(std::time(nullptr))) / 86400;
  }
};

// A listener that takes everybody, as an attacker would write it: it shows this certificate, and notes what it is
// called for.
class Poser {
 public:
  Poser(const std::string& ca, const std::string& key, const std::string& cert) {
    grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
    options.pem_root_certs = ca;
    options.pem_key_cert_pairs.push_back({key, cert});
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options), &port);
    builder.RegisterAsyncGenericService(&service_);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
    service_.RequestCall(&context_, &stream_, queue_.get(), queue_.get(), nullptr);
    thread_ = std::thread([this] {
      void* tag = nullptr;
      bool ok = false;
      while (queue_->Next(&tag, &ok))
        if (ok) called_ = true;
    });
  }
  ~Poser() {
    server_->Shutdown(std::chrono::system_clock::now());
    queue_->Shutdown();
    thread_.join();
  }
  const std::string& address() const { return address_; }
  bool called() const { return called_; }

 private:
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  std::string address_;
  std::atomic<bool> called_ = false;
  std::thread thread_;
};

TEST_F(CertificatesAttack, AWorkersCertificateIsNoTrackers) {
  MakeCertificates();
  // The program refuses to listen with it.
  ExpectError(Cli(Joined({"tracker", "--listen", "127.0.0.1:0"}, Tls("worker"))),
              "the certificate '" + Path("certs/worker.crt") +
                  "' has the role worker, and who listens needs one of the role tracker or service: make one with "
                  "deploy/make-certs.sh");
  // An attacker's program does not; the token stays at home, also where the certificate is for servers as well.
  MakeCertificate(
      "both", "extendedKeyUsage=serverAuth,clientAuth\\nsubjectAltName=IP:127.0.0.1,URI:urn:diapason:role:worker\\n");
  MakeCertificate("named", "extendedKeyUsage=clientAuth\\nsubjectAltName=IP:127.0.0.1,URI:urn:diapason:role:worker\\n");
  const std::vector<std::pair<std::string, std::string>> poses = {
      {"both",
       "shows a certificate of the role worker, which is none of a tracker or service: do not trust it, or make it one "
       "of "
       "these with deploy/make-certs.sh"},
      {"named",
       "shows a certificate that is not for servers, perhaps another peer's: do not trust it, or make it one of the "
       "role "
       "tracker or service with deploy/make-certs.sh"}};
  for (const auto& [peer, sentence] : poses) {
    const Poser poser(ReadText(Path("certs/ca.crt")), ReadText(Path("certs/" + peer + ".key")),
                      ReadText(Path("certs/" + peer + ".crt")));
    ExpectError(Status(poser.address(), "client"), "the tracker at '" + poser.address() + "' " + sentence);
    EXPECT_FALSE(poser.called());
  }
  // It does take calls, from those who see no harm in its certificate.
  const Poser poser(ReadText(Path("certs/ca.crt")), ReadText(Path("certs/tracker.key")),
                    ReadText(Path("certs/tracker.crt")));
  auto credentials = std::make_shared<ClientCredentials>();
  credentials->tls = LoadTls({Path("certs/client.crt"), Path("certs/client.key"), Path("certs/ca.crt")}).value();
  const grpc::Slice nothing;
  EXPECT_FALSE(Call(MakeChannel(poser.address(), credentials), "/diapason.v1.Tracker/ListWorkers",
                    grpc::ByteBuffer(&nothing, 1), nullptr, 2)
                   .ok());
  EXPECT_TRUE(poser.called());
}

TEST_F(CertificatesAttack, ACertificateAsksForWhatItsRoleAllows) {
  MakeCertificates();
  MakeCertificate("old", "extendedKeyUsage=serverAuth,clientAuth\\nsubjectAltName=DNS:localhost,IP:127.0.0.1\\n");
  auto tracker = Tracker("127.0.0.1:0", Joined(Tls("tracker"), {"--tokens", Path("certs/tokens")}));
  const std::string address = tracker->Address();
  ASSERT_EQ(Status(address, "client").code, 0) << tracker->err();
  ASSERT_EQ(Status(address, "service").code, 0) << tracker->err();
  // With the token of the admin, but a worker's or tracker's certificate.
  ExpectError(
      Status(address, "worker"),
      "the certificate given with --tls-cert has the role worker, and this call is for the role client or service: "
      "make one of that role with deploy/make-certs.sh");
  ExpectError(
      Status(address, "tracker"),
      "the certificate given with --tls-cert has the role tracker, and this call is for the role client or service: "
      "make one of that role with deploy/make-certs.sh");
  // A submitter registers no worker.
  auto worker = Worker(address, "worker", Joined(Tls("client"), {"--token-file", Path("certs/worker.token")}));
  EXPECT_EQ(worker->Wait(), 1);
  EXPECT_NE(
      worker->err().find("error: the certificate given with --tls-cert has the role client, and this call is for the "
                         "role worker: make one of that role with deploy/make-certs.sh\n"),
      std::string::npos)
      << worker->err();
  // Without a role: as certificates were once made.
  const std::string no_role =
      "the certificate '" + Path("certs/old.crt") +
      "' has no role: make a new one with deploy/make-certs.sh, or add --tls-allow-no-role until all "
      "certificates of the fleet are replaced";
  ExpectError(Status(address, "old"), no_role);
  ExpectError(Cli(Joined({"tracker", "--listen", "127.0.0.1:0"}, Tls("old"))), no_role);
  ExpectError(Status(address, "old", {"--tls-allow-no-role"}),
              "the certificate given with --tls-cert has no role: make a new one with deploy/make-certs.sh");
  // Both sides of the change: old and new certificates understand each other where that is allowed.
  tracker->Kill();
  auto tolerant = Tracker("127.0.0.1:0", Joined(Tls("old"), {"--tls-allow-no-role"}));
  const std::string old = tolerant->Address();
  EXPECT_EQ(Status(old, "old", {"--tls-allow-no-role"}).code, 0) << tolerant->err();
  EXPECT_EQ(Status(old, "client", {"--tls-allow-no-role"}).code, 0) << tolerant->err();
  ExpectError(Status(old, "client"),
              "the tracker at '" + old +
                  "' shows a certificate without a role: make it a new one with deploy/make-certs.sh, or add "
                  "--tls-allow-no-role here until all certificates of the fleet are replaced");
}

// Renewed on disk: no restart.
TEST_F(CertificatesAttack, CertificatesAreReadAgainWhenTheyChange) {
  MakeCertificates();
  auto tracker = Tracker("127.0.0.1:0", Joined(Tls("tracker"), {"--tokens", Path("certs/tokens")}));
  const std::string address = tracker->Address();
  auto worker = Worker(address, "worker", Joined(Tls("worker"), {"--token-file", Path("certs/worker.token")}));
  auto workers = [&](const std::string& peer) {
    const CliResult status = Status(address, peer);
    return status.code == 0 ? status.json()["devices"].size() : 0;
  };
  ASSERT_TRUE(WaitFor([&] { return workers("client") == 1; })) << tracker->err() << worker->err();
  // An authority of its own for everybody: certificates of the old one are of no use any more.
  std::filesystem::rename(Path("certs"), Path("old"));
  MakeCertificates();
  for (const char* role : {"reader", "submitter", "worker", "admin"})
    std::filesystem::copy_file(Path(std::string("old/") + role + ".token"),
                               Path(std::string("certs/") + role + ".token"),
                               std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy_file(Path("old/tokens"), Path("certs/tokens"),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_TRUE(WaitFor([&] { return Status(address, "client").code == 0; }, 20)) << Status(address, "client").err;
  EXPECT_FALSE(tracker->Poll().has_value());
  // The worker comes back by its new certificate when its connection breaks: with a tracker that knows the new
  // authority alone.
  tracker->Kill();
  tracker = Tracker(address, Joined(Tls("tracker"), {"--tokens", Path("certs/tokens")}));
  EXPECT_TRUE(WaitFor([&] { return workers("client") == 1; }, 30)) << tracker->err() << worker->err();
}

// Half of a file, a certificate of somebody else, one without its key: what was read before stays in use, and that is
// said once.
TEST_F(CertificatesAttack, ABadCertificateChangesNothing) {
  MakeCertificates("--days 40");
  auto tracker =
      Tracker("127.0.0.1:0", Joined(Tls("tracker"), {"--tokens", Path("certs/tokens"), "--metrics", "127.0.0.1:0"}));
  const std::string address = tracker->Address();
  const std::string metrics = MetricsAddress(*tracker);
  const auto serial = [&] { return ShownSerial(address, "client"); };
  const std::string first = serial(), cert = ReadText(Path("certs/tracker.crt"));
  ASSERT_NE(first, "");
  EXPECT_NEAR(DaysLeft(metrics), 40, 1);
  std::filesystem::create_directory(Path("new"));
  for (const char* file : {"ca.crt", "ca.key"})
    std::filesystem::copy_file(Path(std::string("certs/") + file), Path(std::string("new/") + file));
  ASSERT_EQ(std::system(
                ("bash " + TEST_PATH(DIAPASON_MAKE_CERTS) + " " + Path("new") + " --days 70 tracker worker >/dev/null")
                    .c_str()),
            0);
  const std::string fresh = ReadText(Path("new/tracker.crt")), cert_file = Path("certs/tracker.crt"),
                    key_file = Path("certs/tracker.key");
  const std::string key = ReadText(key_file);
  const auto write = [](const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::trunc) << text;
  };
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"--tls-cert '" + cert_file + "' holds no certificate in PEM form", fresh.substr(0, fresh.size() / 2)},
      {"--tls-key '" + key_file + "' is not the key of the certificate '" + cert_file +
           "': give those that belong together",
       fresh},
      {"the certificate '" + cert_file +
           "' has the role worker, and who listens needs one of the role tracker or service: make "
           "one with deploy/make-certs.sh",
       ReadText(Path("new/worker.crt"))}};
  const auto times = [&](const std::string& event) {
    size_t count = 0;
    const std::string log = tracker->err();
    for (size_t at = log.find(event); at != std::string::npos; at = log.find(event, at + 1)) ++count;
    return count;
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    if (i == 2) write(key_file, ReadText(Path("new/worker.key")));
    write(cert_file, bad[i].second);
    ASSERT_TRUE(WaitFor([&] { return times("certificates_not_read") == i + 1; }, 20)) << tracker->err();
    EXPECT_NE(tracker->err().find(bad[i].first), std::string::npos) << tracker->err();
    EXPECT_EQ(serial(), first);
    EXPECT_EQ(Status(address, "client").code, 0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  EXPECT_EQ(times("certificates_not_read"), bad.size()) << tracker->err();
  EXPECT_NEAR(DaysLeft(metrics), 40, 1);
  // A good one with its key is taken.
  write(key_file, ReadText(Path("new/tracker.key")));
  write(cert_file, fresh);
  EXPECT_TRUE(WaitFor([&] { return serial() != first && !serial().empty(); }, 20)) << tracker->err();
  EXPECT_NEAR(DaysLeft(metrics), 70, 1);
  EXPECT_EQ(Status(address, "client").code, 0) << tracker->err();
  EXPECT_EQ(times("certificates_read "), 1u) << tracker->err();
  EXPECT_FALSE(tracker->Poll().has_value());
  EXPECT_NE(key, ReadText(key_file));
}

TEST_F(CertificatesAttack, NoCertificateIsMadeWithoutARole) {
  const std::string folder = Path("made");
  EXPECT_NE(std::system(
                ("bash " + TEST_PATH(DIAPASON_MAKE_CERTS) + " " + folder + " tracker alice 2>" + Path("said")).c_str()),
            0);
  EXPECT_EQ(ReadText(Path("said")),
            "make-certs.sh: 'alice' has no role; write alice:tracker, alice:service, alice:worker or alice:client\n");
  EXPECT_FALSE(std::filesystem::exists(folder));
  EXPECT_EQ(std::system(("bash " + TEST_PATH(DIAPASON_MAKE_CERTS) + " " + folder + " alice:client >/dev/null").c_str()),
            0);
  EXPECT_EQ(RoleOfCertificate(ReadText(folder + "/alice.crt")), PeerRole::kClient);
}

TEST_F(CertificatesAttack, HealthIsAskedWithAnyCertificateOfTheFleetAndNoToken) {
  MakeCertificates();
  auto tracker = Tracker("127.0.0.1:0", Joined(Tls("tracker"), {"--tokens", Path("certs/tokens")}));
  const std::string address = tracker->Address();
  for (const char* peer : {"tracker", "client"}) {
    const CliResult health = Cli(Joined({"fleet", "health", "--address", address}, Tls(peer)));
    EXPECT_EQ(health.code, 0) << health.err;
    EXPECT_EQ(health.out, "serving\n");
  }
  tracker->Kill();
  ExpectError(
      Cli(Joined({"fleet", "health", "--address", address, "--timeout", "0.5"}, Tls("tracker"))),
      "the server at '" + address +
          "' does not answer (Connection refused): start it with 'diapason tracker' or 'diapason serve', or check the "
          "address and the network");
}

}  // namespace
}  // namespace diapason
