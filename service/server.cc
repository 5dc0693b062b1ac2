#include "service/server.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "db/database.h"
#include "db/history.h"
#include "db/history_name.h"
#include "diapason/v1/history.pb.h"
#include "diapason/v1/tuning.pb.h"
#include "service/job_waiters.h"
#include "service/model_store.h"
#include "service/records.h"
#include "service/service_client.h"
#include "worker/rpc/call_gate.h"
#include "worker/rpc/message_limits.h"
#include "worker/rpc/rpc_service.h"
#include "worker/rpc/service_host.h"
#include "worker/tracker/server.h"
#include "worker/tracker/tracker.h"

namespace diapason {
namespace {

constexpr uint32_t kMaxWaitMs = 30000;
constexpr size_t kPageBytes = 4 << 20;

// Messages: a job's options are at most 1 MiB (job_manager.cc), a chunk of a model 1 MiB, a key some 50 bytes.
constexpr MethodRules kLook{Role::kReader, 64 << 10, 1024, Lane::kShort};
constexpr MethodRules kChange{Role::kSubmitter, 64 << 10, 1024, Lane::kShort};
constexpr MethodRules kSubmit{Role::kSubmitter, 1280 << 10, 65536, Lane::kLong};
constexpr MethodRules kPutModel{Role::kSubmitter, 1280 << 10, 16, Lane::kLong};
constexpr MethodRules kForBuild{Role::kReader, 8 << 20, 65552, Lane::kShort};

// Unavailable when another service has taken over, or may have: callers find that one then.
absl::Status MayAct(const CoordinatorOptions& options) {
  return options.jobs.fence == nullptr ? absl::OkStatus() : options.jobs.fence->Holds();
}

// Takes a model, which the first chunk names.
class ModelSink final : public RpcService::Sink {
 public:
  ModelSink(JobManager& jobs, uint64_t max_bytes) : jobs_(jobs), max_bytes_(max_bytes) {}

  absl::Status Add(const google::protobuf::Message& message) override {
    RETURN_IF_ERROR(CheckMessage(message));
    const auto& chunk = static_cast<const v1::ModelChunk&>(message);
    if (!begun_) RETURN_IF_ERROR(Begin(chunk));
    begun_ = true;
    return writer_ == nullptr ? absl::OkStatus() : writer_->Add(chunk.data());
  }
  absl::Status Finish() override {
    if (!begun_) return absl::InvalidArgumentError("the model is empty: name an .onnx file with content");
    return writer_ == nullptr ? absl::OkStatus() : writer_->Finish();
  }

 private:
  absl::Status Begin(const v1::ModelChunk& chunk) {
    if (!ModelStore::IsHash(chunk.hash())) {
      return absl::InvalidArgumentError("a model's hash is the SHA-256 of its content, 64 hexadecimal digits");
    }
    if (chunk.bytes() > max_bytes_) {
      return absl::InvalidArgumentError(
          absl::StrCat("the model has ", chunk.bytes(), " bytes and the service takes ", max_bytes_));
    }
    ASSIGN_OR_RETURN(const bool there, jobs_.models().Has(chunk.hash()));
    if (there) return absl::OkStatus();
    ASSIGN_OR_RETURN(writer_, jobs_.models().Begin(chunk.hash(), chunk.bytes(), jobs_.ModelsInUse()));
    return absl::OkStatus();
  }

  JobManager& jobs_;
  const uint64_t max_bytes_;
  bool begun_ = false;
  std::unique_ptr<ModelStore::Writer> writer_;  // null: the service has it already
};

class TuningService final : public RpcService {
 public:
  TuningService(JobManager& jobs, JobWaiters& waiters, const CoordinatorOptions& options,
                std::shared_ptr<CallGate> gate)
      : RpcService("diapason.v1.Tuning", std::move(gate)), jobs_(jobs), waiters_(waiters), options_(options) {
    Answered<v1::GreetRequest, v1::GreetResponse>("Greet", kLook, &TuningService::Greet);
    Answered<v1::HasModelRequest, v1::HasModelResponse>("HasModel", kChange, &TuningService::HasModel);
    ClientStream<v1::ModelChunk>("PutModel", kPutModel, [this](const CallInfo&) {
      return std::make_unique<ModelSink>(jobs_, options_.max_model_bytes);
    });
    Answered<v1::SubmitJobRequest, v1::SubmitJobResponse>("Submit", kSubmit, &TuningService::Submit);
    Answered<v1::ListJobsRequest, v1::ListJobsResponse>("ListJobs", kLook, &TuningService::ListJobs);
    Unary<v1::GetJobRequest, v1::Job>(
        "GetJob", kLook, [this](const CallInfo& call, const v1::GetJobRequest& request, Reply<v1::Job> reply) {
          if (absl::Status acts = MayAct(options_); !acts.ok()) return reply(acts, {});
          if (absl::Status fits = CheckMessage(request); !fits.ok()) return reply(fits, {});
          waiters_.Add(request.job(), request.seen(),
                       std::chrono::milliseconds(std::min(request.max_wait_ms(), kMaxWaitMs)), call.gone,
                       std::move(reply));
        });
    Answered<v1::CancelJobRequest, v1::Job>("CancelJob", kChange, &TuningService::CancelJob);
    Answered<v1::ResumeJobRequest, v1::Job>("ResumeJob", kChange, &TuningService::ResumeJob);
    Answered<v1::DeleteJobRequest, v1::DeleteJobResponse>("DeleteJob", kChange, &TuningService::DeleteJob);
  }

 private:
  // A method that returns its answer.
  template <typename Request, typename Response>
  void Answered(const std::string& method, const MethodRules& rules,
                absl::Status (TuningService::*answer)(const CallInfo&, const Request&, Response&)) {
    Unary<Request, Response>(method, rules,
                             [this, answer](const CallInfo& call, const Request& request, Reply<Response> reply) {
                               Response response;
                               absl::Status status = MayAct(options_);
                               if (status.ok()) status = CheckMessage(request);
                               if (status.ok()) status = (this->*answer)(call, request, response);
                               reply(status, std::move(response));
                             });
  }

  absl::Status Greet(const CallInfo&, const v1::GreetRequest& request, v1::GreetResponse& response) {
    uint32_t protocol = 0;
    RETURN_IF_ERROR(CompareProtocols("service", request.protocol(), protocol));
    response.set_protocol(protocol);
    response.set_program("diapason");
    response.set_tracker(options_.tracker);
    response.set_max_model_bytes(options_.max_model_bytes);
    response.set_takes_dims(true);
    response.set_takes_strict(true);
    return absl::OkStatus();
  }
  absl::Status HasModel(const CallInfo&, const v1::HasModelRequest& request, v1::HasModelResponse& response) {
    ASSIGN_OR_RETURN(const bool known, jobs_.models().Has(request.hash()));
    response.set_known(known);
    return absl::OkStatus();
  }
  absl::Status Submit(const CallInfo& call, const v1::SubmitJobRequest& request, v1::SubmitJobResponse& response) {
    ASSIGN_OR_RETURN(const int64_t job, jobs_.Submit(request.key(), request.spec(), call.caller.owner));
    response.set_job(job);
    return absl::OkStatus();
  }
  absl::Status ListJobs(const CallInfo&, const v1::ListJobsRequest& request, v1::ListJobsResponse& response) {
    int64_t next = 0;
    for (v1::Job& job : jobs_.List(request.before(), kPageBytes, next)) *response.add_jobs() = std::move(job);
    response.set_next(next);
    return absl::OkStatus();
  }
  absl::Status CancelJob(const CallInfo&, const v1::CancelJobRequest& request, v1::Job& response) {
    ASSIGN_OR_RETURN(response, jobs_.Cancel(request.job()));
    return absl::OkStatus();
  }
  absl::Status ResumeJob(const CallInfo& call, const v1::ResumeJobRequest& request, v1::Job& response) {
    ASSIGN_OR_RETURN(response, jobs_.Resume(request.job(), request.trials(), call.caller.owner));
    return absl::OkStatus();
  }

  absl::Status DeleteJob(const CallInfo&, const v1::DeleteJobRequest& request, v1::DeleteJobResponse&) {
    return jobs_.Delete(request.job());
  }

  JobManager& jobs_;
  JobWaiters& waiters_;
  const CoordinatorOptions& options_;
};

class HistoryService final : public RpcService {
 public:
  HistoryService(History& history, const CoordinatorOptions& options, std::shared_ptr<CallGate> gate)
      : RpcService("diapason.v1.HistoryReader", std::move(gate)), history_(history), options_(options) {
    ServerStream<v1::QueryRequest, v1::Record>(
        "Query", kLook, [this](const CallInfo&, const v1::QueryRequest& request) { return Query(request); });
    ServerStream<v1::ForBuildRequest, v1::Record>(
        "ForBuild", kForBuild,
        [this](const CallInfo&, const v1::ForBuildRequest& request) { return ForBuild(request); });
  }

 private:
  using Records = std::vector<v1::Record>;

  absl::StatusOr<Records> Query(const v1::QueryRequest& request) {
    RETURN_IF_ERROR(MayAct(options_));
    RETURN_IF_ERROR(CheckMessage(request));
    RecordFilter filter;
    filter.target = request.target();
    filter.workload = request.workload();
    filter.device_model = request.device_model();
    filter.network = request.network();
    RETURN_IF_ERROR(CheckNetwork(history_, request.network(), "the service's history"));
    ASSIGN_OR_RETURN(const std::vector<TuningRecord> records,
                     history_.TopK(filter, std::max<int64_t>(1, request.top())));
    Records answer(records.size());
    for (size_t i = 0; i < records.size(); ++i) ToProto(records[i], answer[i]);
    if (request.network().empty()) return answer;
    ASSIGN_OR_RETURN(const auto counts, CountsOf(history_, request.network()));
    for (v1::Record& record : answer)
      if (const auto count = counts.find(record.workload_key()); count != counts.end())
        record.set_network_count(count->second);
    return answer;
  }

  absl::StatusOr<Records> ForBuild(const v1::ForBuildRequest& request) {
    RETURN_IF_ERROR(MayAct(options_));
    RETURN_IF_ERROR(CheckMessage(request));
    ASSIGN_OR_RETURN(const std::string model,
                     ModelForBuild(history_, request.target(), request.device_model(), request.may_differ()));
    ASSIGN_OR_RETURN(const auto records,
                     RecordsForBuild(history_, {request.workload_keys().begin(), request.workload_keys().end()}, model,
                                     request.target()));
    Records answer;
    for (const auto& [key, record] : records) ToProto(record, answer.emplace_back());
    return answer;
  }

  History& history_;
  const CoordinatorOptions& options_;
};

}  // namespace

class CoordinatorServer::Impl {
 public:
  explicit Impl(CoordinatorOptions options) : options_(std::move(options)) {}
  // Calls end before what they use.
  ~Impl() {
    if (jobs_ != nullptr) jobs_->Stop();
    if (waiters_ != nullptr) waiters_->Stop();
    if (host_ != nullptr) host_->Shutdown();
    tracker_.reset();
    host_.reset();
  }

  absl::Status Start() {
    ASSIGN_OR_RETURN(jobs_, JobManager::Open(options_.jobs));
    waiters_ = std::make_unique<JobWaiters>(*jobs_);
    const std::shared_ptr<CallGate> gate = MakeGate(options_.credentials);
    tuning_ = std::make_unique<TuningService>(*jobs_, *waiters_, options_, gate);
    reader_ = std::make_unique<HistoryService>(jobs_->history(), options_, gate);
    ServiceHostOptions host{options_.listen, options_.credentials, gate};
    if (options_.tracker.empty()) {
      const std::string state = options_.state.empty() ? StatePath(options_.jobs.history, ".tracker") : options_.state;
      // Its own tuners need neither a certificate that names a loopback address nor a token.
      ASSIGN_OR_RETURN(tracker_,
                       TrackerServer::Start(host, options_.own_tracker, state, {tuning_.get(), reader_.get()}));
      reach_ = tracker_->in_process();
    } else {
      ASSIGN_OR_RETURN(host_, ServiceHost::Start(host, {tuning_.get(), reader_.get()}));
      reach_ = options_.tracker;
    }
    jobs_->Run(reach_);
    return absl::OkStatus();
  }
  const std::string& address() const { return tracker_ != nullptr ? tracker_->address() : host_->address(); }
  const std::string& tracker() const { return reach_; }
  JobManager& jobs() { return *jobs_; }
  std::vector<Metric> Metrics() {
    std::vector<Metric> metrics = tracker_ == nullptr ? host_->Metrics() : tracker_->Metrics();
    std::map<std::string, double> states = {
        {"queued", 0}, {"running", 0}, {"done", 0}, {"failed", 0}, {"cancelled", 0}};
    double trials = 0, rate = 0;
    int64_t next = 0;
    for (const v1::Job& job : jobs_->List(/*before=*/0, ~size_t{0}, next)) {
      ++states[JobStateName(job)];
      trials += static_cast<double>(job.progress().trials());
      if (job.state() == v1::JOB_STATE_RUNNING) rate += job.progress().trials_per_second();
    }
    Metric jobs{"diapason_service_jobs", "Jobs by state", Metric::Type::kGauge, {}};
    for (const auto& [state, count] : states) jobs.values.push_back({{{"state", state}}, count, {}});
    metrics.push_back(std::move(jobs));
    const ModelStore::Contents models = jobs_->models().contents();
    metrics.push_back(
        Metric::Gauge("diapason_service_models", "Models that are kept", static_cast<double>(models.models)));
    metrics.push_back(Metric::Gauge("diapason_service_model_bytes", "Bytes of the models that are kept",
                                    static_cast<double>(models.bytes)));
    metrics.push_back(Metric::Counter("diapason_service_trials_total", "Trials of all jobs", trials));
    metrics.push_back(Metric::Gauge("diapason_service_trials_per_second", "Of the jobs that run", rate));
    return metrics;
  }

 private:
  const CoordinatorOptions options_;
  std::string reach_;  // the tracker
  std::unique_ptr<JobManager> jobs_;
  std::unique_ptr<JobWaiters> waiters_;
  std::unique_ptr<TuningService> tuning_;
  std::unique_ptr<HistoryService> reader_;
  std::unique_ptr<TrackerServer> tracker_;
  std::unique_ptr<ServiceHost> host_;
};

CoordinatorServer::CoordinatorServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CoordinatorServer::~CoordinatorServer() = default;

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(CoordinatorOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<CoordinatorServer>(new CoordinatorServer(std::move(impl)));
}

const std::string& CoordinatorServer::address() const { return impl_->address(); }
std::vector<Metric> CoordinatorServer::Metrics() { return impl_->Metrics(); }
const std::string& CoordinatorServer::tracker() const { return impl_->tracker(); }
JobManager& CoordinatorServer::jobs() { return impl_->jobs(); }

}  // namespace diapason
