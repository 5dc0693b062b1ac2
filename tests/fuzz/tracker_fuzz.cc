// What peers send to a tracker, call after call: two tuners and two workers whose messages are anything that parses.
//
// An input is a list of calls: a byte that says which call and whose, two bytes with the length of the message, and the
// message. Ids of queues and sessions, which nobody can guess, are filled in.
#include <google/protobuf/stubs/logging.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string_view>

#include "compiler/tensor/target.h"
#include "diapason/v1/measure.pb.h"
#include "diapason/v1/tracker.pb.h"
#include "tests/fuzz/fuzz.h"
#include "worker/process/convert.h"
#include "worker/tracker/store.h"
#include "worker/tracker/tracker.h"

namespace diapason {
namespace {

enum CallKind : uint8_t {
  kOpen,
  kSubmit,
  kNext,
  kCancel,
  kClose,
  kRegister,
  kLease,
  kReport,
  kLeave,
  kList,
  kTick,
  kCalls
};

class Peers {
 public:
  Peers() : tracker_(Options()) {}
  ~Peers() { tracker_.Shutdown(); }

  void Call(uint8_t kind, std::string_view bytes) {
    const size_t who = kind & 1;
    switch (static_cast<CallKind>((kind >> 1) % kCalls)) {
      case kOpen:
        return Made<v1::OpenRequest>(bytes, [&](v1::OpenRequest& request) {
          v1::OpenResponse response;
          if (tracker_.Open(request, response, who == 0 ? "" : "bob").ok()) queues_[who] = response.queue();
        });
      case kSubmit:
        return Made<v1::SubmitRequest>(bytes, [&](v1::SubmitRequest& request) {
          request.set_queue(queues_[who]);
          v1::SubmitResponse response;
          tracker_.Submit(request, response).IgnoreError();
        });
      case kNext:
        return Made<v1::NextRequest>(bytes, [&](v1::NextRequest& request) {
          request.set_queue(queues_[who]);
          tracker_.Next(request, [](const absl::Status& status, const v1::NextResponse& response) {
            FUZZ_EXPECT(status.ok() || response.results_size() == 0);
            FUZZ_EXPECT(response.ByteSizeLong() < size_t{32} << 20);
          });
        });
      case kCancel:
        return Made<v1::CancelRequest>(bytes, [&](v1::CancelRequest& request) {
          request.set_queue(queues_[who]);
          v1::CancelResponse response;
          tracker_.Cancel(request, response).IgnoreError();
        });
      case kClose: {
        v1::CloseRequest request;
        request.set_queue(queues_[who]);
        v1::CloseResponse response;
        return tracker_.Close(request, response).IgnoreError();
      }
      case kRegister:
        return Made<v1::RegisterRequest>(bytes, [&](v1::RegisterRequest& request) {
          v1::RegisterResponse response;
          if (tracker_.Register(request, response).ok()) sessions_[who] = response.session();
        });
      case kLease:
        return Made<v1::LeaseRequest>(bytes, [&](v1::LeaseRequest& request) {
          request.set_session(sessions_[who]);
          tracker_.Lease(request, [this](const absl::Status&, const v1::LeaseResponse& response) {
            for (const v1::LeaseGrant& grant : response.grants()) last_lease_ = grant.lease();
          });
        });
      case kReport:
        return Made<v1::ReportRequest>(bytes, [&](v1::ReportRequest& request) {
          request.set_session(sessions_[who]);
          for (v1::LeaseOutcome& outcome : *request.mutable_outcomes()) outcome.set_lease(last_lease_);
          v1::ReportResponse response;
          tracker_.Report(request, response).IgnoreError();
        });
      case kLeave: {
        v1::LeaveRequest request;
        request.set_session(sessions_[who]);
        v1::LeaveResponse response;
        return tracker_.Leave(request, response).IgnoreError();
      }
      case kList: return List();
      case kTick: now_ += std::chrono::milliseconds(100) * (1 + bytes.size() % 50); return tracker_.Tick();
      case kCalls: return;
    }
  }

 private:
  TrackerOptions Options() {
    TrackerOptions options;
    options.now = [this] { return now_; };
    options.max_answer_bytes = 2000;
    return options;
  }
  template <typename Message, typename Use>
  static void Made(std::string_view bytes, const Use& use) {
    Message message;
    if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) use(message);
  }
  // The pages have an end, and no element is in two.
  void List() {
    v1::ListWorkersRequest request;
    std::set<std::string> workers;
    for (int pages = 0;; ++pages) {
      FUZZ_EXPECT(pages < 1000);
      v1::ListWorkersResponse page;
      FUZZ_EXPECT(tracker_.ListWorkers(request, page).ok());
      for (const v1::WorkerStatus& worker : page.workers()) FUZZ_EXPECT(workers.insert(worker.worker_id()).second);
      if (page.next_page().empty()) break;
      request.set_page(page.next_page());
    }
    tracker_.Metrics();
  }

  std::chrono::steady_clock::time_point now_ = std::chrono::steady_clock::time_point() + std::chrono::hours(1);
  std::string queues_[2], sessions_[2];
  uint64_t last_lease_ = 0;
  Tracker tracker_;
};

void Append(std::string& input, CallKind kind, size_t who, const std::string& message) {
  input += static_cast<char>(kind << 1 | who);
  input += static_cast<char>(message.size() & 255);
  input += static_cast<char>(message.size() >> 8);
  input += message;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  v1::OpenRequest open;
  open.mutable_protocol()->set_high(1);
  v1::RegisterRequest worker;
  worker.mutable_protocol()->set_high(1);
  worker.set_worker_id("w");
  worker.set_name("w");
  v1::DeviceDescription& device = *worker.add_devices();
  device.set_name("cpu:0");
  device.set_target("cpu");
  device.set_state(v1::DEVICE_STATE_READY);
  ToProto(DefaultFacts(Target::Parse("cpu").value()), *device.mutable_facts());
  v1::SubmitRequest submit;
  for (const uint64_t id : {uint64_t{1}, uint64_t{2}}) {
    v1::MeasureRequest& request = *submit.add_requests();
    request.set_id(id);
    request.set_workload("w");
    request.set_schedule(std::to_string(id));
    request.set_target("cpu");
    request.mutable_timing()->set_repeat(3);
    request.mutable_timing()->set_race(true);
    request.set_best_seconds(1e-3);
    request.set_least_operations(1e3);
  }
  v1::LeaseRequest lease;
  lease.add_capacity()->set_device("cpu:0");
  lease.mutable_capacity(0)->set_free(1);
  v1::ReportRequest report;
  report.add_outcomes()->set_lease(1);
  report.mutable_outcomes(0)->mutable_result()->mutable_timing()->add_samples(1e-3);
  report.mutable_outcomes(0)->mutable_result()->mutable_timing()->set_number(1);
  report.mutable_outcomes(0)->mutable_result()->mutable_timing()->set_stopped_early(true);
  v1::CancelRequest cancel;
  cancel.set_all(true);
  std::vector<std::string> seeds;
  for (const bool cancels : {false, true}) {
    std::string input;
    for (const size_t who : {size_t{0}, size_t{1}}) Append(input, kOpen, who, open.SerializeAsString());
    Append(input, kRegister, 0, worker.SerializeAsString());
    for (const size_t who : {size_t{0}, size_t{1}}) {
      Append(input, kSubmit, who, submit.SerializeAsString());
      Append(input, kLease, 0, lease.SerializeAsString());
    }
    if (cancels) Append(input, kCancel, 0, cancel.SerializeAsString());
    Append(input, kList, 0, "");
    Append(input, kReport, 0, report.SerializeAsString());
    for (const size_t who : {size_t{0}, size_t{1}}) Append(input, kNext, who, v1::NextRequest().SerializeAsString());
    Append(input, kTick, 0, std::string(49, ' '));
    Append(input, cancels ? kLeave : kClose, 0, "");
    Append(input, kList, 0, "");
    seeds.push_back(std::move(input));
  }
  return seeds;
}

}  // namespace diapason

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  google::protobuf::SetLogHandler(nullptr);  // it would tell of each text that is no UTF-8
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  diapason::Peers peers;
  for (int calls = 0; rest.size() >= 3 && calls < 200; ++calls) {
    const auto kind = static_cast<uint8_t>(rest[0]);
    const size_t length = static_cast<uint8_t>(rest[1]) | static_cast<size_t>(static_cast<uint8_t>(rest[2])) << 8;
    const std::string_view message = rest.substr(3, length);
    rest.remove_prefix(3 + message.size());
    peers.Call(kind, message);
  }
  return 0;
}
