// Certificates and tokens between processes.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/cli/fleet_fixture.h"
#include "tests/paths.h"

namespace diapason {
namespace {

class SecurityCli : public FleetCli {
 protected:
  // What deploy/make-certs.sh makes: Path(name).
  void Certificates(const std::string& name, const std::string& more = "") {
    ASSERT_EQ(
        std::system(("bash " + TEST_PATH(DIAPASON_MAKE_CERTS) + " " + Path(name) + " " + more + " >/dev/null").c_str()),
        0);
  }
  std::vector<std::string> Tls(const std::string& peer, const std::string& own = "certs",
                               const std::string& ca = "certs") const {
    return {"--tls-cert", Path(own + "/" + peer + ".crt"),
            "--tls-key",  Path(own + "/" + peer + ".key"),
            "--tls-ca",   Path(ca + "/ca.crt")};
  }
  std::vector<std::string> With(std::vector<std::string> args, const std::string& role) const {
    args.insert(args.end(), {"--token-file", Path("certs/" + role + ".token")});
    return args;
  }
  // "2026-11-20"
  static std::string LastDay(const std::string& certificate) {
    FILE* pipe = popen(("openssl x509 -noout -enddate -dateopt iso_8601 -in " + certificate).c_str(), "r");
    char text[64] = {};
    EXPECT_NE(fgets(text, sizeof text, pipe), nullptr);  // "notAfter=2026-11-20 22:55:03Z"
    pclose(pipe);
    return std::string(text).substr(std::strlen("notAfter="), std::strlen("2026-11-20"));
  }
  CliResult Status(const std::string& tracker, const std::vector<std::string>& more) {
    std::vector<std::string> args = {"fleet", "status", "--tracker", tracker, "--wait-timeout", "0.3", "--json"};
    args.insert(args.end(), more.begin(), more.end());
    return Cli(args);
  }
};

TEST_F(SecurityCli, AFleetMeasuresBehindCertificatesAndTokens) {
  Certificates("certs");
  std::vector<std::string> listens = Tls("tracker");
  listens.insert(listens.end(), {"--tokens", Path("certs/tokens")});
  auto tracker = Tracker("127.0.0.1:0", listens);
  const std::string address = tracker->Address();
  ASSERT_NE(address, "") << tracker->err();
  auto worker = Worker(address, "worker", With(Tls("worker"), "worker"));

  // A service over the same tracker, which asks for the same.
  std::vector<std::string> serve = {"serve",     "--listen", "127.0.0.1:0", "--history",         Path("h.db"),
                                    "--tracker", address,    "--tokens",    Path("certs/tokens")};
  for (const std::string& arg : With(Tls("service"), "submitter")) serve.push_back(arg);
  Process service(serve, Path("service"));
  const std::string at = service.Address();
  std::vector<std::string> submit =
      OnSmallProduct("submit", {"--trials", "6", "--min-repeat-ms", "1", "--service", at, "--json", "--wait"});
  for (const std::string& arg : With(Tls("client"), "submitter")) submit.push_back(arg);
  const CliResult done = Cli(submit);
  ASSERT_EQ(done.code, 0) << done.err << service.err() << tracker->err() << worker->err();
  EXPECT_EQ(done.json()["trials"], 6);
  ExpectEachOnce(6);
  EXPECT_EQ(Status(address, With(Tls("client"), "reader")).json()["devices"].size(), 1u);

  // Who may look may not submit.
  submit.back() = Path("certs/reader.token");
  ExpectError(Cli(submit),
              "the token of 'reader' has the role reader, and this call is for the role submitter: ask for a token of "
              "that role");
  ExpectError(
      Status(address, With(Tls("client"), "worker")),
      "the token of 'worker' has the role worker, and this call is for the role reader: ask for a token of that "
      "role");
  ExpectError(Status(address, Tls("client")), "no token came with the call: give one with --token-file");
  // A token of another fleet: the worker gives up, since asking again will not help.
  Certificates("other");
  std::vector<std::string> wrong = Tls("worker");
  wrong.insert(wrong.end(), {"--token-file", Path("other/worker.token")});
  auto stranger = Worker(address, "stranger", wrong);
  EXPECT_EQ(stranger->Wait(), 1);
  EXPECT_NE(stranger->err().find(
                "error: the token is none of those accepted here: ask for one and give it with --token-file\n"),
            std::string::npos)
      << stranger->err();

  // No secret is in any log.
  for (const char* role : {"reader", "submitter", "worker", "admin"}) {
    std::string token = ReadText(Path(std::string("certs/") + role + ".token"));
    token.pop_back();
    for (const std::string& log : {tracker->err(), worker->err(), service.err(), stranger->err()})
      EXPECT_EQ(log.find(token), std::string::npos);
  }
}

TEST_F(SecurityCli, AServiceWithATrackerOfItsOwnNeedsNoTokenForItself) {
  Certificates("certs", "service worker client");
  std::vector<std::string> serve = {"serve",      "--listen", "127.0.0.1:0",       "--history",
                                    Path("h.db"), "--tokens", Path("certs/tokens")};
  for (const std::string& arg : Tls("service")) serve.push_back(arg);
  Process service(serve, Path("service"));
  const std::string at = service.Address();
  auto worker = Worker(at, "worker", With(Tls("worker"), "worker"));
  std::vector<std::string> submit =
      OnSmallProduct("submit", {"--trials", "4", "--min-repeat-ms", "1", "--service", at, "--json", "--wait"});
  for (const std::string& arg : With(Tls("client"), "submitter")) submit.push_back(arg);
  const CliResult done = Cli(submit);
  EXPECT_EQ(done.code, 0) << done.err << service.err() << worker->err();
}

// Who connects first is served when the other is there, certificates or not.
TEST_F(SecurityCli, WhoDialsTooEarlyGetsThrough) {
  Certificates("certs", "service client");
  std::vector<std::string> serve = {"serve",      "--listen", "127.0.0.1:0",       "--history",
                                    Path("h.db"), "--tokens", Path("certs/tokens")};
  for (const std::string& arg : Tls("service")) serve.push_back(arg);
  serve[2] = Process(serve, Path("first")).Address();
  std::vector<std::string> list = {"jobs", "list", "--service", serve[2], "--timeout", "12"};
  for (const std::string& arg : With(Tls("client"), "reader")) list.push_back(arg);
  Process early(list, Path("early"));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_FALSE(early.Poll().has_value());
  Process service(serve, Path("service"));
  EXPECT_EQ(early.Wait(), 0) << early.err() << service.err();
}

TEST_F(SecurityCli, CertificatesThatDoNotFitAreNamed) {
  Certificates("certs");
  Certificates("other");
  Certificates("certs", "--days -1 late:tracker");
  auto tracker = Tracker("127.0.0.1:0", Tls("tracker"));
  const std::string address = tracker->Address();
  ASSERT_EQ(Status(address, Tls("client")).code, 0);
  const std::string at = "the tracker at '" + address + "' ";
  ExpectError(Status(address, {}), at + "speaks TLS: give --tls-cert, --tls-key and --tls-ca");
  ExpectError(Status(address, Tls("client", "certs", "other")),
              at + "shows a certificate that the authority in --tls-ca did not sign: give the certificate of the "
                   "authority that did");
  ExpectError(Status(address, Tls("client", "other", "certs")),
              at + "does not accept the certificate given with --tls-cert: give one that the authority in "
                   "its --tls-ca signed");
  const std::string expired = "the certificate '" + Path("certs/late.crt") + "' has expired, on " +
                              LastDay(Path("certs/late.crt")) +
                              ": make a new one, for example with deploy/make-certs.sh";
  ExpectError(Status(address, Tls("late")), expired);
  std::vector<std::string> listens = {"tracker", "--listen", "127.0.0.1:0"};
  for (const std::string& arg : Tls("late")) listens.push_back(arg);
  ExpectError(Cli(listens), expired);
  ExpectError(Status(address, {"--tls-cert", Path("certs/client.crt")}),
              "--tls-cert, --tls-key and --tls-ca go together: give all three or none");
  // A worker keeps trying, and says why it has to.
  auto worker = Worker(address, "worker", Tls("client", "certs", "other"));
  ASSERT_TRUE(WaitFor([&] {
    return worker->err().find(
               "worker_not_registered tracker=" + address + " worker=worker why=\"" + at +
               "shows a certificate that the authority in --tls-ca did not sign: give the certificate of "
               "the authority that did\"\n") != std::string::npos;
  })) << worker->err();
  EXPECT_FALSE(worker->Poll().has_value());

  worker->Kill();
  tracker->Kill();
  auto plain = Tracker();
  ExpectError(Status(plain->Address(), Tls("client")),
              "the tracker at '" + plain->Address() +
                  "' does not speak TLS: start it with --tls-cert, --tls-key and --tls-ca, or leave them out here");
}

TEST_F(SecurityCli, ACertificateIsForItsNames) {
  Certificates("certs", "tracker client");
  // One that an authority made for another host.
  const std::string elsewhere = "cd " + Path("certs") +
                                " && openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x "
                                "-keyout x.key -out x.csr && printf "
                                "'subjectAltName=DNS:elsewhere,URI:urn:diapason:role:tracker\\n' >x.ext && openssl "
                                "x509 -req -in x.csr -CA ca.crt -CAkey ca.key -days 1 -extfile "
                                "x.ext -set_serial 7 -out x.crt";
  ASSERT_EQ(std::system(("(" + elsewhere + ") >/dev/null 2>&1").c_str()), 0);
  auto tracker = Tracker("127.0.0.1:0", Tls("x"));
  const std::string address = tracker->Address();
  ExpectError(
      Status(address, Tls("client")),
      "the tracker at '" + address +
          "' shows a certificate for other names than '127.0.0.1': connect to it by a name that its certificate has, "
          "or make one for this name");
}

// Each address is checked against its own name: a certificate for one is not taken for the other.
TEST_F(SecurityCli, OfTwoTrackersEachShowsACertificateForItsOwnAddress) {
  Certificates("certs");
  auto tracker = Tracker("127.0.0.1:0", Tls("tracker"));
  const std::string address = tracker->Address();
  ASSERT_NE(address, "") << tracker->err();
  EXPECT_EQ(Status("127.0.0.1:1," + address, Tls("client")).code, 0);
  std::vector<std::string> listens = {"tracker", "--listen", "127.0.0.2:0"};
  for (const std::string& arg : Tls("tracker")) listens.push_back(arg);
  Process wrong(listens, Path("wrong"));
  const std::string wrong_address = wrong.Address();
  ASSERT_NE(wrong_address, "") << wrong.err();
  const CliResult refused = Status("127.0.0.1:1," + wrong_address, Tls("client"));
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("'" + wrong_address + "' shows a certificate for other names than '127.0.0.2'"),
            std::string::npos)
      << refused.err;
  EXPECT_EQ(Status(wrong_address + "," + address, Tls("client")).code, 0);
}

}  // namespace
}  // namespace diapason
