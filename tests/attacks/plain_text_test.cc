// Names that look like loopback: plain text must not leave the host for them.
#include "tests/attacks/attack_fixture.h"

namespace diapason {
namespace {

class PlainTextAttack : public AttackTest {};

TEST_F(PlainTextAttack, ANameThatBeginsLikeALoopbackAddressIsRefused) {
  auto sentence = [](const std::string& what) {
    return what +
           " would speak plain text beyond this host; give --tls-cert, --tls-key and --tls-ca, or add --insecure if "
           "every "
           "host that can reach it is trusted";
  };
  for (const std::string host :
       {"127.evil.com", "127.0.0.1.evil.com", "127.0.0", "localhost.evil.com", "[::1%lo]", "[::2]"}) {
    ExpectError(Cli({"fleet", "status", "--tracker", host + ":9190"}), sentence("--tracker " + host + ":9190"));
    ExpectError(Cli({"jobs", "list", "--service", host + ":9191"}), sentence("--service " + host + ":9191"));
    ExpectError(Cli({"tracker", "--listen", host + ":0"}), sentence("--listen " + host + ":0"));
  }
}

// Whatever runs listens on loopback only and is asked there in plain text.
TEST_F(PlainTextAttack, LoopbackAddressesNeedNoCertificates) {
  auto service = Serve();
  const std::string address = service->Address();
  ASSERT_EQ(address.rfind("127.", 0), 0u) << address << service->err();
  EXPECT_TRUE(IsHealthy(address)) << service->err();
  EXPECT_EQ(Cli({"jobs", "list", "--service", address, "--json"}).code, 0);
  for (const std::string host : {"localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"}) {
    const CliResult status = Cli({"fleet", "status", "--tracker", host + ":1", "--wait-timeout", "0.1"});
    EXPECT_EQ(status.err.find("would speak plain text"), std::string::npos) << status.err;
    EXPECT_NE(status.err.find("does not answer"), std::string::npos) << status.err;
  }
}

}  // namespace
}  // namespace diapason
