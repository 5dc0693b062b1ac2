// Tokens, roles and certificates as files hold them; tests/cli/security_test.cc has them between processes.
#include "worker/rpc/security.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/paths.h"
#include "tests/worker/testing.h"
#include "worker/agent/agent.h"
#include "worker/rpc/tokens.h"
#include "worker/tracker/server.h"

namespace diapason {
namespace {

class SecurityTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text, mode_t mode = 0600) {
    const std::string path = folder_.path() + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  // What `deploy/make-certs.sh` makes, in a folder of its own.
  std::string Certificates(const std::string& name, const std::string& more = "") {
    const std::string path = folder_.path() + "/" + name;
    EXPECT_EQ(std::system(("bash " + TEST_PATH(DIAPASON_MAKE_CERTS) + " " + path + " " + more + " >/dev/null").c_str()),
              0);
    return path;
  }
  static TlsFiles Files(const std::string& certs, const std::string& peer) {
    return {certs + "/" + peer + ".crt", certs + "/" + peer + ".key", certs + "/ca.crt"};
  }
  TemporaryFolder folder_;
};

constexpr char kTokens[] =
    "# who may what\n"
    "reader    reader-token-0001\n"
    "\n"
    "submitter submitter-token-1   alice\n"
    "worker    worker-token-0001   rack-a\n"
    "admin     admin-token-00001   root\n";

TEST_F(SecurityTest, ARoleAllowsItsOwnCallsOnly) {
  auto authority = Authority::Load(Write("tokens", kTokens));
  ASSERT_TRUE(authority.ok()) << authority.status();
  struct Case {
    std::string token;
    std::vector<Role> allowed;
  };
  const std::vector<Role> all = {Role::kReader, Role::kSubmitter, Role::kWorker, Role::kAdmin};
  for (const Case& one :
       {Case{"reader-token-0001", {Role::kReader}}, Case{"submitter-token-1", {Role::kReader, Role::kSubmitter}},
        Case{"worker-token-0001", {Role::kWorker}}, Case{"admin-token-00001", all}}) {
    for (Role role : all) {
      const bool allowed = std::find(one.allowed.begin(), one.allowed.end(), role) != one.allowed.end();
      EXPECT_EQ((*authority)->Check(one.token, role).ok(), allowed) << one.token << " " << RoleName(role);
    }
  }
  EXPECT_EQ((*authority)->Check("worker-token-0001", Role::kReader),
            absl::PermissionDeniedError("the token of 'rack-a' has the role worker, and this call is for the role "
                                        "reader: ask for a token of that role"));
  EXPECT_EQ((*authority)->Check("reader-token-0001", Role::kWorker).message(),
            "the token of 'line 2' has the role reader, and this call is for the role worker: ask for a token of that "
            "role");
  EXPECT_EQ((*authority)->Check("", Role::kReader),
            absl::UnauthenticatedError("no token came with the call: give one with --token-file"));
  EXPECT_EQ((*authority)->Check("reader-token-0002", Role::kReader),
            absl::UnauthenticatedError(
                "the token is none of those accepted here: ask for one and give it with --token-file"));
}

TEST_F(SecurityTest, TokensAreGivenAndTakenBackWhileItRuns) {
  const std::string path = Write("tokens", kTokens);
  auto authority = Authority::Load(path);
  ASSERT_TRUE(authority.ok()) << authority.status();
  auto becomes = [&](const std::string& token, bool known) {
    const auto began = std::chrono::steady_clock::now();
    while ((*authority)->Check(token, Role::kReader).ok() != known && SecondsSince(began) < 20)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return (*authority)->Check(token, Role::kReader).ok() == known;
  };
  Write("tokens", "reader another-token-0001\n");
  EXPECT_TRUE(becomes("another-token-0001", true));
  EXPECT_FALSE((*authority)->Check("reader-token-0001", Role::kReader).ok());
  // Half a file changes nothing.
  Write("tokens", "read");
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  EXPECT_TRUE((*authority)->Check("another-token-0001", Role::kReader).ok());
}

TEST_F(SecurityTest, FilesOfTokensThatDoNotFit) {
  const std::string form =
      ": write ROLE TOKEN [NAME], with one of the roles reader, submitter, worker and admin, and a token of at least "
      "16 "
      "letters and digits";
  auto refused = [&](const std::string& text) {
    return std::string(Authority::Load(Write("tokens", text)).status().message());
  };
  const std::string file = "--tokens '" + folder_.path() + "/tokens'";
  EXPECT_EQ(refused("owner owner-token-00001"), file + ", line 1" + form);
  EXPECT_EQ(refused("# only\n\nreader short"), file + ", line 3" + form);
  EXPECT_EQ(refused("reader reader-token-0001 a b"), file + ", line 1" + form);
  EXPECT_EQ(refused("reader reader/token/0001"), file + ", line 1" + form);
  EXPECT_EQ(refused("reader reader-token-0001\nadmin reader-token-0001"),
            file + ", line 2: this token is in a line before; give each once");
  EXPECT_EQ(refused("# none\n"), file + " holds no token");
  EXPECT_EQ(Authority::Load(Write("open", kTokens, 0644)).status(),
            absl::PermissionDeniedError("--tokens '" + folder_.path() +
                                        "/open' may be read by others than its owner: chmod 600 " + folder_.path() +
                                        "/open"));
  EXPECT_EQ(Authority::Load(folder_.path() + "/none").status(),
            absl::NotFoundError("cannot read --tokens '" + folder_.path() + "/none' (No such file or directory)"));
  EXPECT_EQ(LoadToken(Write("mine", "  reader-token-0001\n")).value(), "reader-token-0001");
  EXPECT_EQ(LoadToken(Write("two", "reader-token-0001 reader-token-0002")).status(),
            absl::InvalidArgumentError("--token-file '" + folder_.path() +
                                       "/two' is to hold one token, of at least 16 letters and digits, and nothing "
                                       "else"));
}

TEST_F(SecurityTest, CertificatesAreCheckedBeforeTheyAreShown) {
  const std::string certs = Certificates("certs", "worker"), late = Certificates("late", "--days -1 worker");
  const absl::StatusOr<TlsIdentity> loaded = LoadTls(Files(certs, "worker"));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_NE(loaded->key.find("PRIVATE KEY"), std::string::npos);
  auto message = [](const TlsFiles& files) { return std::string(LoadTls(files).status().message()); };
  TlsFiles files = Files(certs, "worker");
  files.ca.clear();
  EXPECT_EQ(message(files), "--tls-cert, --tls-key and --tls-ca go together: give all three or none");
  files = Files(certs, "worker");
  files.cert = certs + "/none";
  EXPECT_EQ(message(files), "cannot read --tls-cert '" + certs + "/none' (No such file or directory)");
  files.cert = certs + "/tokens";
  EXPECT_EQ(message(files), "--tls-cert '" + certs + "/tokens' holds no certificate in PEM form");
  files = Files(certs, "worker");
  files.key = late + "/worker.key";
  EXPECT_EQ(message(files), "--tls-key '" + late + "/worker.key' is not the key of the certificate '" + certs +
                                "/worker.crt': give those that belong together");
  files.key = certs + "/worker.token";
  EXPECT_EQ(message(files),
            "--tls-key '" + certs + "/worker.token' holds no private key in PEM form without a password");
  files = Files(certs, "worker");
  chmod(files.key.c_str(), 0640);
  EXPECT_EQ(message(files),
            "--tls-key '" + files.key + "' may be read by others than its owner: chmod 600 " + files.key);
  const std::string text = message(Files(late, "worker"));
  EXPECT_EQ(text.rfind("the certificate '" + late + "/worker.crt' has expired, on 20", 0), 0u) << text;
  EXPECT_NE(text.find(": make a new one, for example with deploy/make-certs.sh"), std::string::npos) << text;
}

// Certificates that expire while their process runs: it took them when they were good.
TEST_F(SecurityTest, CertificatesThatExpiredMeanwhileAreNamedOnEitherSide) {
  const std::string certs = Certificates("certs", "tracker worker");
  Certificates("certs", "--days -1 late:tracker");
  auto read = [&](const std::string& name) {
    std::ifstream file(certs + "/" + name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  auto identity = [&](const std::string& peer) {
    return TlsIdentity{read(peer + ".crt"), read(peer + ".key"), read("ca.crt"), {}};
  };
  auto what_fails = [&](const std::string& server, const std::string& client) {
    auto tracker = TrackerServer::Start({"127.0.0.1:0", {identity(server), nullptr}});
    EXPECT_TRUE(tracker.ok()) << tracker.status();
    AgentOptions options;
    options.tracker = (*tracker)->address();
    options.credentials = std::make_shared<ClientCredentials>(ClientCredentials{identity(client), ""});
    options.pipeline = FakeOptions(folder_);
    auto worker = WorkerAgent::Start(std::move(options));
    EXPECT_TRUE(worker.ok()) << worker.status();
    std::string text((*worker)->WaitUntilRegistered(5).message());
    const std::string address = (*tracker)->address();
    if (const size_t at = text.find(address); at != std::string::npos) text.replace(at, address.size(), "IT");
    if (const size_t at = text.find(address); at != std::string::npos) text.replace(at, address.size(), "IT");
    return text;
  };
  EXPECT_EQ(what_fails("tracker", "worker"), "");
  EXPECT_EQ(
      what_fails("late", "worker"),
      "the tracker at 'IT' has not accepted the worker: the tracker at 'IT' shows a certificate that has expired: make "
      "it a new one, for example with deploy/make-certs.sh");
  EXPECT_EQ(
      what_fails("tracker", "late"),
      "the tracker at 'IT' has not accepted the worker: the tracker at 'IT' does not accept the certificate given with "
      "--tls-cert, which has expired: make a new one, for example with deploy/make-certs.sh, and start again with it");
}

}  // namespace
}  // namespace diapason
