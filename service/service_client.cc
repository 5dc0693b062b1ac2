#include "service/service_client.h"

#include <chrono>
#include <fstream>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "diapason/v1/history.grpc.pb.h"
#include "diapason/v1/tuning.grpc.pb.h"
#include "service/model_store.h"
#include "service/records.h"
#include "worker/rpc/channel.h"
#include "worker/tracker/tracker.h"

namespace diapason {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kCallTimeout{15000};
// Loading and checking a large model is part of Submit.
constexpr std::chrono::milliseconds kSubmitTimeout{300000};
constexpr std::chrono::milliseconds kTransferTimeout{3600000};
// Of services that take over from each other after 15 s by default.
constexpr double kGiveUp = 10, kGiveUpOfSeveral = 60;
constexpr size_t kChunkBytes = 1 << 20;

std::string RandomKey() {
  std::random_device random;
  std::string key;
  for (int i = 0; i < 32; ++i) key += "0123456789abcdef"[random() & 15];
  return key;
}

}  // namespace

class ServiceClient::Impl {
 public:
  Impl(std::string address, ServiceClientOptions options)
      : address_(std::move(address)),
        options_(options),
        peer_(address_, options_.credentials),
        tuning_(peer_),
        reader_(peer_) {
    if (options_.give_up_seconds == 0) options_.give_up_seconds = peer_.addresses() == 1 ? kGiveUp : kGiveUpOfSeveral;
  }

  // Calls until it works, is refused, or nobody has answered for give_up_seconds.
  template <typename Call>
  absl::Status Insist(std::chrono::milliseconds timeout, const Call& call) {
    PeerRetry retry(peer_, options_.give_up_seconds);
    while (true) {
      CallGuard guard;
      retry.Begin();
      absl::Status status = guard.Run(timeout, call);
      if (absl::IsUnimplemented(status)) {
        return absl::FailedPreconditionError("'" + address_ +
                                             "' is not a tuning service: name the address that 'diapason serve' "
                                             "listens on");
      }
      // A service that goes down cancels the calls that it has.
      if (!IsTransient(status) && !absl::IsCancelled(status)) return status;
      retry.NextAddress();
      const std::optional<std::chrono::milliseconds> wait = retry.Pause();
      if (!wait.has_value()) return NoAnswer("service", address_, status, options_.credentials);
      std::this_thread::sleep_for(*wait);
    }
  }

  absl::Status Greet() {
    v1::GreetRequest request;
    request.mutable_protocol()->set_low(kLowestProtocol);
    request.mutable_protocol()->set_high(kHighestProtocol);
    request.set_program("diapason");
    v1::GreetResponse response;
    RETURN_IF_ERROR(
        Insist(kCallTimeout, [&](grpc::ClientContext& c) { return tuning_->Greet(&c, request, &response); }));
    max_model_bytes_ = response.max_model_bytes();
    takes_dims_ = response.takes_dims();
    takes_strict_ = response.takes_strict();
    tracker_ = response.tracker().empty() ? address_ : response.tracker();
    return absl::OkStatus();
  }

  const std::string& tracker() const { return tracker_; }

  absl::Status Send(const std::string& path, const std::string& hash) {
    v1::HasModelRequest request;
    request.set_hash(hash);
    v1::HasModelResponse response;
    RETURN_IF_ERROR(
        Insist(kCallTimeout, [&](grpc::ClientContext& c) { return tuning_->HasModel(&c, request, &response); }));
    if (response.known()) return absl::OkStatus();
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    const auto bytes = static_cast<uint64_t>(file.tellg());
    if (bytes > max_model_bytes_) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " has ", bytes, " bytes and the service takes ", max_model_bytes_));
    }
    return Insist(kTransferTimeout, [&](grpc::ClientContext& c) {
      file.clear();
      file.seekg(0);
      v1::PutModelResponse done;
      std::unique_ptr<grpc::ClientWriter<v1::ModelChunk>> writer = tuning_->PutModel(&c, &done);
      v1::ModelChunk chunk;
      chunk.set_hash(hash);
      chunk.set_bytes(bytes);
      std::string data(kChunkBytes, '\0');
      while (file.read(data.data(), static_cast<std::streamsize>(data.size())) || file.gcount() > 0) {
        chunk.set_data(data.data(), static_cast<size_t>(file.gcount()));
        if (!writer->Write(chunk)) break;  // refused: Finish tells why
        chunk.Clear();
      }
      writer->WritesDone();
      return writer->Finish();
    });
  }

  absl::StatusOr<int64_t> Submit(TuneSpec spec) {
    if (!spec.dims.empty() && !takes_dims_)
      return absl::FailedPreconditionError(
          absl::StrCat("the service at ", address_,
                       " is older than --dim and would tune other shapes: update it, or leave --dim out"));
    if (spec.options.strict && !takes_strict_)
      return absl::FailedPreconditionError(
          absl::StrCat("the service at ", address_,
                       " is older than --strict and would compute float64 as it is: update it, or leave --strict out"));
    const bool is_file = spec.model.find('/') != std::string::npos || spec.model.ends_with(".onnx");
    if (is_file) {
      const std::string path = spec.model;
      ASSIGN_OR_RETURN(spec.model_hash, HashOfFile(path));
      RETURN_IF_ERROR(Send(path, spec.model_hash));
    }
    v1::SubmitJobRequest request;
    request.set_key(RandomKey());
    ToProto(spec, *request.mutable_spec());
    v1::SubmitJobResponse response;
    RETURN_IF_ERROR(
        Insist(kSubmitTimeout, [&](grpc::ClientContext& c) { return tuning_->Submit(&c, request, &response); }));
    return response.job();
  }

  absl::StatusOr<std::vector<v1::Job>> List() {
    std::vector<v1::Job> jobs;
    v1::ListJobsRequest request;
    while (true) {
      v1::ListJobsResponse response;
      RETURN_IF_ERROR(
          Insist(kCallTimeout, [&](grpc::ClientContext& c) { return tuning_->ListJobs(&c, request, &response); }));
      jobs.insert(jobs.end(), response.jobs().begin(), response.jobs().end());
      // Ids fall, so that the pages have an end.
      if (response.next() <= 0 || (request.before() > 0 && response.next() >= request.before())) return jobs;
      request.set_before(response.next());
    }
  }

  absl::Status Delete(int64_t job) {
    v1::DeleteJobRequest request;
    request.set_job(job);
    v1::DeleteJobResponse response;
    return Insist(kCallTimeout, [&](grpc::ClientContext& c) { return tuning_->DeleteJob(&c, request, &response); });
  }

  template <typename Request, typename Method>
  absl::StatusOr<v1::Job> JobCall(const Request& request, Method method, std::chrono::milliseconds wait = {}) {
    v1::Job job;
    RETURN_IF_ERROR(Insist(kCallTimeout + wait,
                           [&](grpc::ClientContext& c) { return (tuning_.get()->*method)(&c, request, &job); }));
    return job;
  }

  template <typename Request, typename Method>
  absl::StatusOr<std::vector<TuningRecord>> Records(const Request& request, Method method,
                                                    std::map<std::string, double>* counts = nullptr) {
    std::vector<v1::Record> messages;
    RETURN_IF_ERROR(Insist(kTransferTimeout, [&](grpc::ClientContext& c) {
      messages.clear();
      std::unique_ptr<grpc::ClientReader<v1::Record>> reader = (reader_.get()->*method)(&c, request);
      for (v1::Record message; reader->Read(&message);) messages.push_back(message);
      return reader->Finish();
    }));
    std::vector<TuningRecord> records;
    for (const v1::Record& message : messages) {
      if (counts != nullptr && message.network_count() > 0) (*counts)[message.workload_key()] = message.network_count();
      ASSIGN_OR_RETURN(TuningRecord record, FromProto(message));
      records.push_back(std::move(record));
    }
    return records;
  }

 private:
  const std::string address_;
  ServiceClientOptions options_;  // constant after construction
  Peer peer_;
  const PeerStub<v1::Tuning> tuning_;
  const PeerStub<v1::HistoryReader> reader_;
  uint64_t max_model_bytes_ = 0;
  bool takes_dims_ = false;
  bool takes_strict_ = false;
  std::string tracker_;
};

ServiceClient::ServiceClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ServiceClient::~ServiceClient() = default;

absl::StatusOr<std::unique_ptr<ServiceClient>> ServiceClient::Connect(const std::string& address,
                                                                      ServiceClientOptions options) {
  auto impl = std::make_unique<Impl>(address, options);
  RETURN_IF_ERROR(impl->Greet());
  return std::unique_ptr<ServiceClient>(new ServiceClient(std::move(impl)));
}

const std::string& ServiceClient::tracker() const { return impl_->tracker(); }

absl::StatusOr<int64_t> ServiceClient::Submit(TuneSpec spec) { return impl_->Submit(std::move(spec)); }
absl::StatusOr<std::vector<v1::Job>> ServiceClient::List() { return impl_->List(); }

absl::StatusOr<v1::Job> ServiceClient::Get(int64_t job, uint64_t seen, double wait_seconds) {
  v1::GetJobRequest request;
  request.set_job(job);
  request.set_seen(seen);
  request.set_max_wait_ms(static_cast<uint32_t>(wait_seconds * 1000));
  return impl_->JobCall(request, &v1::Tuning::Stub::GetJob, std::chrono::milliseconds(request.max_wait_ms()));
}

absl::StatusOr<v1::Job> ServiceClient::Cancel(int64_t job) {
  v1::CancelJobRequest request;
  request.set_job(job);
  return impl_->JobCall(request, &v1::Tuning::Stub::CancelJob);
}

absl::StatusOr<v1::Job> ServiceClient::Resume(int64_t job, int64_t trials) {
  v1::ResumeJobRequest request;
  request.set_job(job);
  request.set_trials(trials);
  return impl_->JobCall(request, &v1::Tuning::Stub::ResumeJob);
}

absl::Status ServiceClient::Delete(int64_t job) { return impl_->Delete(job); }

absl::StatusOr<std::vector<TuningRecord>> ServiceClient::Query(const RecordFilter& filter, int64_t top,
                                                               std::map<std::string, double>* counts) {
  v1::QueryRequest request;
  request.set_target(filter.target);
  request.set_workload(filter.workload);
  request.set_device_model(filter.device_model);
  request.set_network(filter.network);
  request.set_top(top);
  return impl_->Records(request, &v1::HistoryReader::Stub::Query, counts);
}

absl::StatusOr<std::map<std::string, TuningRecord>> ServiceClient::ForBuild(
    const std::vector<std::string>& workload_keys, const std::string& target, const std::string& device_model,
    bool may_differ) {
  v1::ForBuildRequest request;
  *request.mutable_workload_keys() = {workload_keys.begin(), workload_keys.end()};
  request.set_target(target);
  request.set_device_model(device_model);
  request.set_may_differ(may_differ);
  ASSIGN_OR_RETURN(std::vector<TuningRecord> records, impl_->Records(request, &v1::HistoryReader::Stub::ForBuild));
  std::map<std::string, TuningRecord> by_key;
  for (TuningRecord& record : records) by_key.emplace(record.workload_key, std::move(record));
  return by_key;
}

bool HasEnded(const v1::Job& job) {
  return job.state() == v1::JOB_STATE_DONE || job.state() == v1::JOB_STATE_FAILED ||
         job.state() == v1::JOB_STATE_CANCELLED;
}

std::string JobStateName(const v1::Job& job) {
  switch (job.state()) {
    case v1::JOB_STATE_QUEUED: return "queued";
    case v1::JOB_STATE_RUNNING: return "running";
    case v1::JOB_STATE_DONE: return "done";
    case v1::JOB_STATE_FAILED: return "failed";
    case v1::JOB_STATE_CANCELLED: return "cancelled";
    default: return "unknown";
  }
}

}  // namespace diapason
