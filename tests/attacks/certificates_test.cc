// Certificates of the fleet's own authority in the wrong hands: a worker's host poses as the tracker, or as a submitter.
#include <grpcpp/generic/async_generic_service.h>

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
    return Cli(Joined(Joined({"fleet", "status", "--tracker", tracker, "--wait", "0.3", "--json", "--token-file",
                              Path("certs/admin.token")},
                             Tls(peer)),
                      more));
  }
  // A certificate of the fleet's authority with these extensions, as somebody with an authority of his own may make it.
  void MakeCertificate(const std::string& name, const std::string& extensions) {
    const std::string command = "cd " + Path("certs") +
                                " && openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x -keyout " + name +
                                ".key -out x.csr && printf '" + extensions +
                                "' >x.ext && openssl x509 -req -in x.csr -CA ca.crt -CAkey ca.key -days 1 -extfile x.ext "
                                "-set_serial 7 -out " + name + ".crt";
    ASSERT_EQ(std::system(("(" + command + ") >/dev/null 2>&1").c_str()), 0);
  }
  // A listener that takes everybody, as an attacker would write it: it shows `peer`'s certificate, and notes what it is sent.
  std::unique_ptr<grpc::Server> Pose(const std::string& peer, std::string& address, grpc::AsyncGenericService& service,
                                     std::unique_ptr<grpc::ServerCompletionQueue>& queue) {
    grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
    options.pem_root_certs = ReadText(Path("certs/ca.crt"));
    options.pem_key_cert_pairs.push_back({ReadText(Path("certs/" + peer + ".key")), ReadText(Path("certs/" + peer + ".crt"))});
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options), &port);
    builder.RegisterAsyncGenericService(&service);
    queue = builder.AddCompletionQueue();
    auto server = builder.BuildAndStart();
    address = "127.0.0.1:" + std::to_string(port);
    return server;
  }
};

TEST_F(CertificatesAttack, AWorkersCertificateIsNoTrackers) {
  MakeCertificates();
  // The program refuses to listen with it.
  ExpectError(Cli(Joined({"tracker", "--listen", "127.0.0.1:0"}, Tls("worker"))),
              "the certificate '" + Path("certs/worker.crt") +
                  "' has the role worker, and who listens needs one of the role tracker or service: make one with "
                  "deploy/make-certs.sh");
  // An attacker's program does not; the token stays at home, also where the certificate is for servers as well.
  MakeCertificate("both", "extendedKeyUsage=serverAuth,clientAuth\\nsubjectAltName=IP:127.0.0.1,URI:urn:diapason:role:worker\\n");
  MakeCertificate("named", "extendedKeyUsage=clientAuth\\nsubjectAltName=IP:127.0.0.1,URI:urn:diapason:role:worker\\n");
  const std::vector<std::pair<std::string, std::string>> poses = {
      {"both",
       "shows a certificate of the role worker, which is none of a tracker or service: do not trust it, or make it one of "
       "these with deploy/make-certs.sh"},
      {"named",
       "shows a certificate that is not for servers, perhaps another peer's: do not trust it, or make it one of the role "
       "tracker or service with deploy/make-certs.sh"}};
  for (const auto& [peer, sentence] : poses) {
    std::string address;
    grpc::AsyncGenericService service;
    std::unique_ptr<grpc::ServerCompletionQueue> queue;
    std::unique_ptr<grpc::Server> server = Pose(peer, address, service, queue);
    ASSERT_NE(server, nullptr);
    grpc::GenericServerContext context;
    grpc::GenericServerAsyncReaderWriter stream(&context);
    service.RequestCall(&context, &stream, queue.get(), queue.get(), &context);
    ExpectError(Status(address, "client"), "the tracker at '" + address + "' " + sentence);
    void* tag = nullptr;
    bool ok = false;
    EXPECT_EQ(queue->AsyncNext(&tag, &ok, std::chrono::system_clock::now()), grpc::CompletionQueue::TIMEOUT)
        << "a call came: " << context.method();
    server->Shutdown(std::chrono::system_clock::now());
    queue->Shutdown();
    while (queue->Next(&tag, &ok)) {
    }
  }
}

TEST_F(CertificatesAttack, ACertificateAsksForWhatItsRoleAllows) {
  MakeCertificates();
  MakeCertificate("old", "extendedKeyUsage=serverAuth,clientAuth\\nsubjectAltName=DNS:localhost,IP:127.0.0.1\\n");
  auto tracker = Tracker("127.0.0.1:0", Joined(Tls("tracker"), {"--tokens", Path("certs/tokens")}));
  const std::string address = tracker->Address();
  ASSERT_EQ(Status(address, "client").code, 0) << tracker->err();
  ASSERT_EQ(Status(address, "service").code, 0) << tracker->err();
  // With the token of the admin, but a worker's or tracker's certificate.
  ExpectError(Status(address, "worker"),
              "the certificate given with --tls-cert has the role worker, and this call is for the role client or service: "
              "make one of that role with deploy/make-certs.sh");
  ExpectError(Status(address, "tracker"),
              "the certificate given with --tls-cert has the role tracker, and this call is for the role client or service: "
              "make one of that role with deploy/make-certs.sh");
  // A submitter registers no worker.
  auto worker = Worker(address, "worker", Joined(Tls("client"), {"--token-file", Path("certs/worker.token")}));
  EXPECT_EQ(worker->Wait(), 1);
  EXPECT_NE(worker->err().find("error: the certificate given with --tls-cert has the role client, and this call is for the "
                               "role worker: make one of that role with deploy/make-certs.sh\n"),
            std::string::npos)
      << worker->err();
  // Without a role: as certificates were once made.
  const std::string no_role = "the certificate '" + Path("certs/old.crt") +
                              "' has no role: make a new one with deploy/make-certs.sh, or add --tls-allow-no-role until all "
                              "certificates of the fleet are replaced";
  ExpectError(Status(address, "old"), no_role);
  ExpectError(Cli(Joined({"tracker", "--listen", "127.0.0.1:0"}, Tls("old"))), no_role);
  ExpectError(Status(address, "old", {"--tls-allow-no-role"}),
              "the certificate given with --tls-cert has no role: make a new one with deploy/make-certs.sh");
  // Both sides of the change: old and new certificates understand each other where that is allowed.
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
    std::filesystem::copy_file(Path(std::string("old/") + role + ".token"), Path(std::string("certs/") + role + ".token"),
                               std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy_file(Path("old/tokens"), Path("certs/tokens"), std::filesystem::copy_options::overwrite_existing);
  EXPECT_TRUE(WaitFor([&] { return Status(address, "client").code == 0; }, 20)) << Status(address, "client").err;
  EXPECT_FALSE(tracker->Poll().has_value());
  // The worker comes back by its new certificate when its connection breaks: with a tracker that knows the new authority alone.
  tracker->Kill();
  tracker = Tracker(address, Joined(Tls("tracker"), {"--tokens", Path("certs/tokens")}));
  EXPECT_TRUE(WaitFor([&] { return workers("client") == 1; }, 30)) << tracker->err() << worker->err();
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
  ExpectError(Cli(Joined({"fleet", "health", "--address", address, "--timeout", "0.5"}, Tls("tracker"))),
              "the server at '" + address +
                  "' does not answer (Connection refused): start it with 'diapason tracker' or 'diapason serve', or check the "
                  "address and the network");
}

}  // namespace
}  // namespace diapason
