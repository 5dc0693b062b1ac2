// Certificates that change under a running process; tests/attacks/certificates_test.cc does it to a whole tracker.
#include "worker/rpc/tls_watch.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "tests/paths.h"
#include "tests/worker/testing.h"

namespace diapason {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

class TlsWatchTest : public testing::Test {
 protected:
  void SetUp() override { certs_ = Certificates("certs", "--days 30 tracker worker"); }
  std::string Certificates(const std::string& name, const std::string& more) {
    const std::string path = folder_.path() + "/" + name;
    EXPECT_EQ(std::system(("bash " + TEST_PATH(DIAPASON_MAKE_CERTS) + " " + path + " " + more + " >/dev/null").c_str()),
              0);
    return path;
  }
  TlsFiles Files(const std::string& peer) const {
    return {certs_ + "/" + peer + ".crt", certs_ + "/" + peer + ".key", certs_ + "/ca.crt"};
  }
  static TlsWatch& Watch(const TlsFiles& files, bool listens) {
    const absl::StatusOr<TlsIdentity> identity = LoadTls(files, {.listens = listens});
    EXPECT_TRUE(identity.ok()) << identity.status();
    return TlsWatch::Of(*identity);
  }
  static bool Becomes(const TlsWatch& watch, const std::string& cert) {
    const auto began = std::chrono::steady_clock::now();
    while (watch.identity().cert != cert && SecondsSince(began) < 20)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return watch.identity().cert == cert;
  }
  // Time for two readings.
  static void Wait() { std::this_thread::sleep_for(std::chrono::milliseconds(2300)); }
  // What gRPC is given.
  static void ExpectPublished(const TlsWatch& watch) {
    const TlsIdentity in_use = watch.identity();
    EXPECT_EQ(Read(watch.identity_path()), in_use.key + "\n" + in_use.cert);
    EXPECT_EQ(Read(watch.root_path()), in_use.ca);
  }

  TemporaryFolder folder_;
  std::string certs_;
};

TEST_F(TlsWatchTest, FilesThatAreRefusedChangeNothing) {
  const TlsFiles files = Files("tracker");
  TlsWatch& watch = Watch(files, /*listens=*/true);
  ExpectPublished(watch);
  const std::string first = Read(files.cert);
  const std::string other = Certificates("other", "--days 60 tracker worker");
  struct stat info {};
  ASSERT_EQ(stat(watch.identity_path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  // Its key is not there yet; half of it; none; a worker's.
  for (const std::string& bad : {Read(other + "/tracker.crt"), first.substr(0, first.size() / 2), std::string()}) {
    std::ofstream(files.cert, std::ios::trunc) << bad;
    Wait();
    EXPECT_EQ(watch.identity().cert, first);
    ExpectPublished(watch);
  }
  std::filesystem::rename(certs_ + "/worker.key", files.key);
  std::filesystem::rename(certs_ + "/worker.crt", files.cert);
  Wait();
  EXPECT_EQ(watch.identity().cert, first);
  ExpectPublished(watch);
  EXPECT_NEAR(ExpiryInUse(files), static_cast<double>(std::time(nullptr)) + 30 * 86400, 86400);
  // All three of another authority.
  for (const char* name : {"tracker.key", "tracker.crt", "ca.crt"})
    std::filesystem::rename(other + "/" + name, certs_ + "/" + name);
  const std::string second = Read(files.cert);
  EXPECT_TRUE(Becomes(watch, second));
  ExpectPublished(watch);
  EXPECT_NEAR(ExpiryInUse(files), static_cast<double>(std::time(nullptr)) + 60 * 86400, 86400);
}

TEST_F(TlsWatchTest, ConnectionsShareOneForTheSameFiles) {
  TlsWatch& watch = Watch(Files("worker"), /*listens=*/false);
  EXPECT_EQ(&watch, &Watch(Files("worker"), /*listens=*/false));
  EXPECT_NE(&watch, &Watch(Files("tracker"), /*listens=*/false));
  // A client's certificate may be a worker's, and later one of another role.
  std::filesystem::copy_file(certs_ + "/tracker.key", certs_ + "/worker.key",
                             std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy_file(certs_ + "/tracker.crt", certs_ + "/worker.crt",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_TRUE(Becomes(watch, Read(certs_ + "/tracker.crt")));
}

TEST_F(TlsWatchTest, WhatHasNoFilesStaysAsItIs) {
  const TlsFiles files = Files("worker");
  TlsIdentity identity = LoadTls(files).value();
  identity.files = {};
  EXPECT_EQ(TlsWatch::InUse(identity).cert, identity.cert);
  EXPECT_EQ(ExpiryInUse(files), 0);
}

}  // namespace
}  // namespace diapason
