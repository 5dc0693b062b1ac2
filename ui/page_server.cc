#include "ui/page_server.h"

#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/mutex.h"
#include "ui/assets.h"
#include "ui/page_tls.h"
#include "worker/rpc/log.h"
#include "worker/rpc/log_pacer.h"
#include "worker/rpc/tokens.h"

namespace diapason {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kJson[] = "application/json; charset=utf-8";
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";
constexpr size_t kMostChanges = 256;  // that a page which was away can catch up with
constexpr auto kHeartbeat = std::chrono::seconds(10);
constexpr auto kServicePoll = std::chrono::seconds(1);
constexpr int kMostExplains = 2;  // at once
constexpr size_t kThreadsBesideFollowers = 16;

int HttpStatus(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument: return 400;
    case absl::StatusCode::kUnauthenticated: return 401;
    case absl::StatusCode::kPermissionDenied: return 403;
    case absl::StatusCode::kNotFound: return 404;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable: return 503;
    default: return 500;
  }
}

void Refuse(httplib::Response& response, const absl::Status& status) {
  response.status = HttpStatus(status);
  if (response.status == 401) response.set_header("WWW-Authenticate", "Bearer");
  response.set_content(JsonText({{"schema", "diapason.page.error/1"}, {"error", std::string(status.message())}}),
                       kJson);
}

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

// "[::1]:80" -> "[::1]", "localhost" -> "localhost"
std::string HostOfHeader(const std::string& header) {
  const size_t colon = header.rfind(':');
  const bool port = colon != std::string::npos && header.find(']', colon) == std::string::npos;
  return port ? header.substr(0, colon) : header;
}

bool IsAnyAddress(const std::string& host) { return host == "0.0.0.0" || host == "[::]"; }

std::string WithoutBrackets(const std::string& host) {
  return host.size() > 2 && host.front() == '[' ? host.substr(1, host.size() - 2) : host;
}

// As set_content, but never compressed: the library's brotli takes 0.6 s for 200 KB, longer than any network of ours.
void Send(httplib::Response& response, std::shared_ptr<const std::string> owner, std::string_view text,
          const std::string& type) {
  response.set_content_provider(text.size(), type,
                                [owner = std::move(owner), text](size_t offset, size_t size, httplib::DataSink& sink) {
                                  return sink.write(text.data() + offset, std::min(size, text.size() - offset));
                                });
}

// The documents that followers get, each with a number that grows.
struct Latest {
  uint64_t number = 0;
  std::string text;
};

}  // namespace

class PageServer::Impl {
 public:
  explicit Impl(PageOptions options) : options_(std::move(options)) {}
  ~Impl() { Stop(); }

  absl::Status Start();
  const std::string& url() const { return url_; }

 private:
  using Request = httplib::Request;
  using Response = httplib::Response;
  // What one event stream has been sent.
  struct Follower {
    uint64_t version = 0;
    uint64_t jobs = 0, fleet = 0;
    Clock::time_point last = Clock::now();
  };
  struct Change {
    uint64_t version;
    std::string text;  // empty: read the history again
  };

  void Stop();
  absl::Status Listen();
  void AddRoutes();
  absl::Status Admit(const Request& request);
  absl::Status CheckHost(const Request& request) const;
  void LogRefusal(const Request& request, const absl::Status& why);
  void AddDocument(const std::string& path, std::function<absl::StatusOr<std::string>(const Request&)> make);
  absl::StatusOr<std::string> HistoryText();
  absl::StatusOr<std::string> RecordText(const Request& request);
  absl::StatusOr<std::string> JobText(const Request& request) const;
  absl::StatusOr<std::string> SourceText(const char* schema, const char* name, const PageOptions::Source& source) const;
  void Follow(const Request& request, Response& response);
  bool SendNews(Follower& follower, httplib::DataSink& sink);
  std::string NewsFor(Follower& follower) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Watch();
  void PollHistory();
  void Publish(const char* schema, const char* name, const PageOptions::Source& source, Latest Impl::*latest);

  const PageOptions options_;
  std::unique_ptr<httplib::Server> server_;
  std::string url_;
  std::thread listener_, watcher_;
  LogPacer refusals_;

  Mutex feed_mutex_;
  std::unique_ptr<HistoryFeed> feed_ ABSL_GUARDED_BY(feed_mutex_);
  std::string snapshot_ ABSL_GUARDED_BY(feed_mutex_);  // of version snapshot_version_
  uint64_t snapshot_version_ ABSL_GUARDED_BY(feed_mutex_) = 0;

  Mutex mutex_;
  CondVar news_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  size_t followers_ ABSL_GUARDED_BY(mutex_) = 0;
  int explains_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 1;
  std::deque<Change> changes_ ABSL_GUARDED_BY(mutex_);
  Latest jobs_ ABSL_GUARDED_BY(mutex_);
  Latest fleet_ ABSL_GUARDED_BY(mutex_);
};

absl::Status PageServer::Impl::Start() {
  {
    MutexLock feed_lock(feed_mutex_);
    ASSIGN_OR_RETURN(feed_, HistoryFeed::Open(options_.history, options_.feed));
    MutexLock lock(mutex_);
    version_ = feed_->version();
  }
  if (options_.credentials.tls.has_value()) {
    server_ = std::make_unique<httplib::SSLServer>(
        [this](SSL_CTX& context) { return SetUpServerTls(&context, *options_.credentials.tls); });
  } else {
    server_ = std::make_unique<httplib::Server>();
  }
  if (!server_->is_valid()) return absl::UnavailableError("OpenSSL cannot serve with the certificate of --tls-cert");
  AddRoutes();
  RETURN_IF_ERROR(Listen());
  listener_ = std::thread([this] { server_->listen_after_bind(); });
  while (!server_->is_running())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // stop() has no effect before
  watcher_ = std::thread([this] { Watch(); });
  return absl::OkStatus();
}

absl::Status PageServer::Impl::Listen() {
  const size_t threads = options_.max_followers + kThreadsBesideFollowers;
  server_->new_task_queue = [threads] { return new httplib::ThreadPool(threads); };
  server_->set_payload_max_length(4096);
  server_->set_read_timeout(10);
  server_->set_write_timeout(10);
  server_->set_keep_alive_timeout(1);  // stopping waits for it
  // Without SO_REUSEPORT, which the library sets by itself: a second server on the same port would get half of the
  // connections.
  server_->set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  const std::string host = HostOf(options_.address);
  int port = 0;
  (void)absl::SimpleAtoi(options_.address.substr(host.size() + 1), &port);
  const std::string name = WithoutBrackets(host);
  const bool bound = port == 0 ? (port = server_->bind_to_any_port(name)) > 0 : server_->bind_to_port(name, port);
  if (!bound) {
    return absl::UnavailableError(absl::StrCat("cannot serve the page at ", options_.flag, " ", options_.address,
                                               ": the port is in use or the address is not of this host"));
  }
  url_ = absl::StrCat(options_.credentials.tls.has_value() ? "https://" : "http://", host, ":", port, "/");
  return absl::OkStatus();
}

void PageServer::Impl::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  news_.NotifyAll();
  if (watcher_.joinable()) watcher_.join();
  if (!listener_.joinable()) return;
  {
    MutexLock lock(mutex_);  // streams end properly, so that browsers need not guess
    news_.WaitFor(lock, std::chrono::seconds(2),
                  [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return followers_ == 0; });
  }
  server_->stop();
  listener_.join();
}

// A browser sends the name that the user has typed.
absl::Status PageServer::Impl::CheckHost(const Request& request) const {
  const std::string own = HostOf(options_.address), named = HostOfHeader(request.get_header_value("Host"));
  if (named == own || named == "localhost" || named == "127.0.0.1" || named == "[::1]") return absl::OkStatus();
  // Beyond loopback a host has many names, and the token is what keeps others out.
  if (options_.credentials.authority != nullptr) return absl::OkStatus();
  if (IsAnyAddress(own)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("this page is at ", url_, ", and the request names another host; open it by that address"));
}

absl::Status PageServer::Impl::Admit(const Request& request) {
  {
    MutexLock lock(mutex_);  // a connection that was kept alive may still ask
    if (stopping_) return absl::UnavailableError("the program stops");
  }
  RETURN_IF_ERROR(CheckHost(request));
  if (options_.credentials.tls.has_value()) RETURN_IF_ERROR(CheckPeer(request.ssl, *options_.credentials.tls));
  if (options_.credentials.authority == nullptr || !absl::StartsWith(request.path, "/api/")) return absl::OkStatus();
  const std::string header = request.get_header_value("Authorization");
  absl::string_view token = header;
  if (!absl::ConsumePrefix(&token, "Bearer ")) token = "";
  return options_.credentials.authority->Check(std::string(token), Role::kReader);
}

// As call_refused of gRPC services.
void PageServer::Impl::LogRefusal(const Request& request, const absl::Status& why) {
  uint64_t more = 0;
  if (!refusals_.Allows(more)) return;
  LogEvent(LogLevel::kWarning, "page_refused",
           {{"peer", request.remote_addr}, {"why", std::string(why.message())}, {"more", absl::StrCat(more)}});
}

void PageServer::Impl::AddDocument(const std::string& path,
                                   std::function<absl::StatusOr<std::string>(const Request&)> make) {
  server_->Get(path, [make = std::move(make)](const Request& request, Response& response) {
    absl::StatusOr<std::string> text = make(request);
    if (!text.ok()) return Refuse(response, text.status());
    const auto owner = std::make_shared<const std::string>(*std::move(text));
    Send(response, owner, *owner, kJson);
  });
}

void PageServer::Impl::AddRoutes() {
  server_->set_default_headers({{"Content-Security-Policy", kPolicy},
                                {"X-Content-Type-Options", "nosniff"},
                                {"X-Frame-Options", "DENY"},
                                {"Referrer-Policy", "no-referrer"},
                                {"Cross-Origin-Opener-Policy", "same-origin"},
                                {"Cross-Origin-Resource-Policy", "same-origin"},
                                {"Cache-Control", "no-store"}});
  server_->set_pre_routing_handler([this](const Request& request, Response& response) {
    const absl::Status admitted = Admit(request);
    if (admitted.ok()) return httplib::Server::HandlerResponse::Unhandled;
    LogRefusal(request, admitted);
    Refuse(response, admitted);
    return httplib::Server::HandlerResponse::Handled;
  });
  server_->set_error_handler([](const Request&, Response& response) {
    if (response.body.empty()) Refuse(response, absl::NotFoundError("there is no such page"));
  });
  for (const PageAsset& asset : PageAssets()) {
    const std::string path = asset.name == "index.html" ? "/" : "/" + std::string(asset.name);
    server_->Get(path, [&asset](const Request&, Response& response) {
      Send(response, nullptr, asset.text, std::string(asset.type));
    });
  }
  AddDocument("/api/history", [this](const Request&) { return HistoryText(); });
  AddDocument(R"(/api/records/(\d{1,18}))", [this](const Request& request) { return RecordText(request); });
  AddDocument("/api/jobs",
              [this](const Request&) { return SourceText("diapason.page.jobs/2", "jobs", options_.jobs); });
  AddDocument(R"(/api/jobs/(\d{1,18}))", [this](const Request& request) { return JobText(request); });
  AddDocument("/api/fleet",
              [this](const Request&) { return SourceText("diapason.page.fleet/2", "fleet", options_.fleet); });
  server_->Get("/api/events", [this](const Request& request, Response& response) { Follow(request, response); });
}

absl::StatusOr<std::string> PageServer::Impl::HistoryText() {
  PollHistory();  // without followers nobody has looked for a while
  MutexLock lock(feed_mutex_);
  if (snapshot_version_ != feed_->version()) {
    Json json = feed_->Snapshot();
    json["live"] = true;
    json["has_jobs"] = options_.jobs != nullptr;
    json["has_fleet"] = options_.fleet != nullptr;
    snapshot_ = JsonText(json);
    snapshot_version_ = feed_->version();
  }
  return snapshot_;
}

absl::StatusOr<std::string> PageServer::Impl::RecordText(const Request& request) {
  int64_t record = 0;
  if (!absl::SimpleAtoi(request.matches[1].str(), &record)) return absl::NotFoundError("there is no such record");
  {
    MutexLock lock(mutex_);
    if (!news_.WaitFor(lock, std::chrono::seconds(30), [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
          return stopping_ || explains_ < kMostExplains;
        }))
      return absl::ResourceExhaustedError("too many records are being explained; try again");
    if (stopping_) return absl::UnavailableError("the program stops");
    ++explains_;
  }
  const absl::StatusOr<Json> explained = options_.explain(record);
  {
    MutexLock lock(mutex_);
    --explains_;
  }
  news_.NotifyAll();
  RETURN_IF_ERROR(explained.status());
  Json json = {{"schema", "diapason.page.record/2"}};
  json.update(*explained);
  json["schema"] = "diapason.page.record/2";  // which comes first, in place of that of the command
  return JsonText(json);
}

absl::StatusOr<std::string> PageServer::Impl::JobText(const Request& request) const {
  int64_t job = 0;
  if (options_.job == nullptr || !absl::SimpleAtoi(request.matches[1].str(), &job))
    return absl::NotFoundError("there is no such job here");
  ASSIGN_OR_RETURN(const Json found, options_.job(job));
  return JsonText({{"schema", "diapason.page.job/2"}, {"job", found}});
}

absl::StatusOr<std::string> PageServer::Impl::SourceText(const char* schema, const char* name,
                                                         const PageOptions::Source& source) const {
  if (source == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("there is no ", name, " here: only `diapason serve --http` has it, and this is a history alone"));
  }
  const absl::StatusOr<Json> found = source();
  Json json = {{"schema", schema}};
  if (found.ok()) {
    json[name] = *found;
  } else {  // a page goes on with what it has, and says why
    json["error"] = std::string(found.status().message());
  }
  return JsonText(json);
}

void PageServer::Impl::Follow(const Request& request, Response& response) {
  auto follower = std::make_shared<Follower>();
  if (!absl::SimpleAtoi(request.get_param_value("after"), &follower->version)) {
    return Refuse(response, absl::InvalidArgumentError(
                                "give the version of the history that you have, as in /api/events?after=1"));
  }
  {
    MutexLock lock(mutex_);
    if (followers_ >= options_.max_followers)
      return Refuse(response, absl::ResourceExhaustedError("too many pages are open; this one asks again later"));
    ++followers_;
  }
  news_.NotifyAll();
  response.set_chunked_content_provider(
      "text/event-stream", [this, follower](size_t, httplib::DataSink& sink) { return SendNews(*follower, sink); },
      [this](bool) {
        MutexLock lock(mutex_);
        --followers_;
        news_.NotifyAll();
      });
}

// What has come since, as events.
std::string PageServer::Impl::NewsFor(Follower& follower) {
  std::string text;
  const bool known = follower.version == version_ || (!changes_.empty() && follower.version < version_ &&
                                                      follower.version + 1 >= changes_.front().version);
  if (!known) {
    follower.version = version_;
    text = "event: again\ndata: {}\n\n";
  }
  for (const Change& change : changes_) {
    if (change.version <= follower.version) continue;
    absl::StrAppend(&text, change.text.empty() ? "event: again\ndata: {}" : "event: change\ndata: ", change.text,
                    "\n\n");
    follower.version = change.version;
  }
  for (auto& [name, latest, seen] : {std::tuple{"jobs", &jobs_, &follower.jobs}, {"fleet", &fleet_, &follower.fleet}}) {
    if (latest->number == *seen) continue;
    absl::StrAppend(&text, "event: ", name, "\ndata: ", latest->text, "\n\n");
    *seen = latest->number;
  }
  return text;
}

bool PageServer::Impl::SendNews(Follower& follower, httplib::DataSink& sink) {
  std::string text;
  {
    MutexLock lock(mutex_);
    text = NewsFor(follower);
    if (text.empty() && !stopping_) {
      news_.WaitFor(lock, std::chrono::seconds(1));
      text = NewsFor(follower);
    }
    if (stopping_) {
      sink.done();
      return true;
    }
  }
  const auto now = Clock::now();
  if (text.empty() && now - follower.last >= kHeartbeat) text = ": still here\n\n";
  if (text.empty()) return sink.is_writable();
  follower.last = now;
  return sink.is_writable() && sink.write(text.data(), text.size());
}

void PageServer::Impl::PollHistory() {
  MutexLock lock(feed_mutex_);
  const absl::StatusOr<std::optional<HistoryFeed::Change>> change = feed_->Poll();
  if (!change.ok()) {
    LogEvent(LogLevel::kWarning, "page_cannot_read_history", {{"why", std::string(change.status().message())}});
    return;
  }
  if (!change->has_value()) return;
  const std::string text = (*change)->whole ? "" : JsonText((*change)->delta);
  MutexLock news_lock(mutex_);
  version_ = feed_->version();
  changes_.push_back({version_, text});
  if (changes_.size() > kMostChanges) changes_.pop_front();
  news_.NotifyAll();
}

void PageServer::Impl::Publish(const char* schema, const char* name, const PageOptions::Source& source,
                               Latest Impl::*latest) {
  if (source == nullptr) return;
  absl::StatusOr<std::string> text = SourceText(schema, name, source);
  MutexLock lock(mutex_);
  Latest& known = this->*latest;
  if (!text.ok() || *text == known.text) return;
  known.text = *std::move(text);
  ++known.number;
  news_.NotifyAll();
}

// Looks for changes while somebody follows.
void PageServer::Impl::Watch() {
  auto asked = Clock::time_point();
  while (true) {
    {
      MutexLock lock(mutex_);
      news_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || followers_ > 0; });
      if (news_.WaitFor(lock, std::chrono::duration<double>(options_.poll_seconds),
                        [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; }))
        return;
    }
    PollHistory();
    if (Clock::now() - asked < kServicePoll) continue;
    asked = Clock::now();
    Publish("diapason.page.jobs/2", "jobs", options_.jobs, &Impl::jobs_);
    Publish("diapason.page.fleet/2", "fleet", options_.fleet, &Impl::fleet_);
  }
}

PageServer::PageServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PageServer::~PageServer() = default;
const std::string& PageServer::url() const { return impl_->url(); }

absl::StatusOr<std::unique_ptr<PageServer>> PageServer::Start(PageOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<PageServer>(new PageServer(std::move(impl)));
}

}  // namespace diapason
