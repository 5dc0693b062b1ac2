#include "service/fetch.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"

namespace diapason {
namespace {

constexpr size_t kMost = size_t{1} << 20;

// A server of this machine for the length of a test.
class Fetch : public testing::Test {
 protected:
  void SetUp() override {
    server_.Get("/records.jsonl", [](const httplib::Request& request, httplib::Response& response) {
      response.set_content(absl::StrCat("{}\n", request.has_param("x") ? request.get_param_value("x") : ""),
                           "text/plain");
    });
    server_.Get("/moved",
                [](const httplib::Request&, httplib::Response& response) { response.set_redirect("/records.jsonl"); });
    server_.Get("/secret", [](const httplib::Request& request, httplib::Response& response) {
      const bool known = request.get_header_value("Authorization") == "Basic dXNlcjpwYXNz";  // user:pass
      response.status = known ? 200 : 401;
      if (known) response.set_content("secret", "text/plain");
    });
    server_.Get("/broken", [](const httplib::Request&, httplib::Response& response) { response.status = 503; });
    server_.Get("/endless", [](const httplib::Request&, httplib::Response& response) {
      response.set_chunked_content_provider("text/plain", [](size_t, httplib::DataSink& sink) {
        const std::string block(1 << 16, 'x');
        return sink.write(block.data(), block.size());
      });
    });
    port_ = server_.bind_to_any_port("127.0.0.1");
    ASSERT_GT(port_, 0);
    thread_ = std::thread([this] { server_.listen_after_bind(); });
  }
  void TearDown() override {
    server_.stop();
    thread_.join();
  }

  std::string Url(const std::string& path, const std::string& user = "") const {
    return absl::StrCat("http://", user, "127.0.0.1:", port_, path);
  }

  httplib::Server server_;
  std::thread thread_;
  int port_ = 0;
};

TEST_F(Fetch, GivesTheContentAndFollowsRedirections) {
  EXPECT_EQ(FetchUrl(Url("/records.jsonl"), kMost).value_or("none"), "{}\n");
  EXPECT_EQ(FetchUrl(Url("/records.jsonl?x=7#part"), kMost).value_or("none"), "{}\n7");
  EXPECT_EQ(FetchUrl(Url("/moved"), kMost).value_or("none"), "{}\n");
}

TEST_F(Fetch, GivesUserAndPasswordToThisServerAlone) {
  EXPECT_EQ(FetchUrl(Url("/secret", "user:pass@"), kMost).value_or("none"), "secret");
  EXPECT_EQ(
      FetchUrl(Url("/secret", "user:wrong@"), kMost).status(),
      absl::PermissionDeniedError(absl::StrCat(Url("/secret"),
                                               " cannot be read: the server answered with status 401; give user and "
                                               "password as in https://user:password@host/")));
  EXPECT_EQ(FetchUrl(Url("/moved", "user:pass@"), kMost).status(),
            absl::UnavailableError(absl::StrCat(
                Url("/moved"), " leads to /records.jsonl, which is not followed with a password; name that address")));
}

TEST_F(Fetch, SaysWhatIsWrongWithTheAddress) {
  EXPECT_EQ(FetchUrl(Url("/other"), kMost).status(),
            absl::NotFoundError(absl::StrCat(
                Url("/other"), " cannot be read: the server answered with status 404; check the address")));
  EXPECT_EQ(FetchUrl(Url("/broken"), kMost).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(
      FetchUrl("http:///records.jsonl", kMost).status(),
      absl::InvalidArgumentError("'http:///records.jsonl' names no server; write it as in https://host/records.jsonl"));
  EXPECT_EQ(FetchUrl("records.jsonl", kMost).status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status nobody = FetchUrl("http://user:pass@127.0.0.1:1/records.jsonl", kMost).status();
  EXPECT_EQ(nobody.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(nobody.message().find("pass"), std::string::npos) << nobody;
}

TEST_F(Fetch, StopsAtTheLimit) {
  EXPECT_EQ(FetchUrl(Url("/endless"), kMost).status(),
            absl::ResourceExhaustedError(absl::StrCat(
                Url("/endless"), " is larger than 1 MiB, which no file of records is; check the address")));
}

TEST(WebAddress, IsShownWithoutUserAndPassword) {
  EXPECT_TRUE(IsWebAddress("https://host/a"));
  EXPECT_FALSE(IsWebAddress("postgresql://host/a"));
  EXPECT_FALSE(IsWebAddress("http"));
  EXPECT_EQ(ShownAddress("https://user:p@ss@host:8/a?b=1"), "https://host:8/a?b=1");
  EXPECT_EQ(ShownAddress("https://host"), "https://host/");
}

}  // namespace
}  // namespace diapason
