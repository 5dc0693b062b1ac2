#include "service/server.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/tensor/check.h"
#include "db/history.h"
#include "diapason/v1/history.grpc.pb.h"
#include "diapason/v1/tuning.grpc.pb.h"
#include "service/model_store.h"
#include "service/records.h"
#include "service/service_client.h"
#include "worker/authorize.h"
#include "worker/grpc_status.h"
#include "worker/message_limits.h"
#include "worker/service_host.h"
#include "worker/tracker.h"
#include "worker/tracker_server.h"

namespace diapason {
namespace {

constexpr uint32_t kMaxWaitMs = 30000;
// So that a caller that has gone does not hold its thread for the whole wait.
constexpr uint32_t kWaitStepMs = 500;
constexpr size_t kPageBytes = 4 << 20;

class TuningService final : public v1::Tuning::Service {
 public:
  TuningService(JobManager& jobs, const CoordinatorOptions& options) : jobs_(jobs), options_(options) {}

  grpc::Status Greet(grpc::ServerContext* c, const v1::GreetRequest* q, v1::GreetResponse* a) override {
    if (absl::Status may = May(*c, Role::kReader, *q); !may.ok()) return ToGrpc(may);
    uint32_t protocol = 0;
    if (absl::Status status = CompareProtocols("service", q->protocol(), protocol); !status.ok()) return ToGrpc(status);
    a->set_protocol(protocol);
    a->set_program("diapason");
    a->set_tracker(options_.tracker);
    a->set_max_model_bytes(options_.max_model_bytes);
    return grpc::Status::OK;
  }

  grpc::Status HasModel(grpc::ServerContext* c, const v1::HasModelRequest* q, v1::HasModelResponse* a) override {
    if (absl::Status may = May(*c, Role::kSubmitter, *q); !may.ok()) return ToGrpc(may);
    a->set_known(jobs_.models().Has(q->hash()));
    return grpc::Status::OK;
  }

  grpc::Status PutModel(grpc::ServerContext* c, grpc::ServerReader<v1::ModelChunk>* reader,
                        v1::PutModelResponse*) override {
    if (absl::Status may = May(*c, Role::kSubmitter); !may.ok()) return ToGrpc(may);
    return ToGrpc(TakeModel(*reader));
  }

  grpc::Status Submit(grpc::ServerContext* c, const v1::SubmitJobRequest* q, v1::SubmitJobResponse* a) override {
    if (absl::Status may = May(*c, Role::kSubmitter, *q); !may.ok()) return ToGrpc(may);
    absl::StatusOr<int64_t> job = jobs_.Submit(q->key(), q->spec());
    if (job.ok()) a->set_job(*job);
    return ToGrpc(job.status());
  }

  grpc::Status ListJobs(grpc::ServerContext* c, const v1::ListJobsRequest* q, v1::ListJobsResponse* a) override {
    if (absl::Status may = May(*c, Role::kReader, *q); !may.ok()) return ToGrpc(may);
    int64_t next = 0;
    for (v1::Job& job : jobs_.List(q->before(), kPageBytes, next)) *a->add_jobs() = std::move(job);
    a->set_next(next);
    return grpc::Status::OK;
  }

  grpc::Status GetJob(grpc::ServerContext* c, const v1::GetJobRequest* q, v1::Job* a) override {
    if (absl::Status may = May(*c, Role::kReader, *q); !may.ok()) return ToGrpc(may);
    for (uint32_t left = std::min(q->max_wait_ms(), kMaxWaitMs);; left -= std::min(left, kWaitStepMs)) {
      absl::StatusOr<v1::Job> job =
          jobs_.Get(q->job(), q->seen(), std::chrono::milliseconds(std::min(left, kWaitStepMs)));
      if (!job.ok()) return ToGrpc(job.status());
      if (left > kWaitStepMs && job->version() <= q->seen() && !c->IsCancelled()) continue;
      *a = *std::move(job);
      return grpc::Status::OK;
    }
  }

  grpc::Status CancelJob(grpc::ServerContext* c, const v1::CancelJobRequest* q, v1::Job* a) override {
    if (absl::Status may = May(*c, Role::kSubmitter, *q); !may.ok()) return ToGrpc(may);
    return Answer(jobs_.Cancel(q->job()), a);
  }
  grpc::Status ResumeJob(grpc::ServerContext* c, const v1::ResumeJobRequest* q, v1::Job* a) override {
    if (absl::Status may = May(*c, Role::kSubmitter, *q); !may.ok()) return ToGrpc(may);
    return Answer(jobs_.Resume(q->job(), q->trials()), a);
  }
  grpc::Status DeleteJob(grpc::ServerContext* c, const v1::DeleteJobRequest* q, v1::DeleteJobResponse*) override {
    if (absl::Status may = May(*c, Role::kSubmitter, *q); !may.ok()) return ToGrpc(may);
    return ToGrpc(jobs_.Delete(q->job()));
  }

 private:
  absl::Status May(const grpc::ServerContext& context, Role needed) {
    return Authorize(context, options_.credentials.authority, needed);
  }

  // And whether the request is within its limits.
  absl::Status May(const grpc::ServerContext& context, Role needed, const google::protobuf::Message& request) {
    RETURN_IF_ERROR(May(context, needed));
    return CheckMessage(request);
  }

  static grpc::Status Answer(absl::StatusOr<v1::Job> job, v1::Job* a) {
    if (job.ok()) *a = *std::move(job);
    return ToGrpc(job.status());
  }

  absl::Status TakeModel(grpc::ServerReader<v1::ModelChunk>& reader) {
    v1::ModelChunk chunk;
    if (!reader.Read(&chunk)) return absl::InvalidArgumentError("a model without content");
    if (!ModelStore::IsHash(chunk.hash())) {
      return absl::InvalidArgumentError("a model's hash is the SHA-256 of its content, 64 hexadecimal digits");
    }
    if (chunk.bytes() > options_.max_model_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("the model has ", chunk.bytes(), " bytes and the service takes ", options_.max_model_bytes));
    }
    if (jobs_.models().Has(chunk.hash())) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::unique_ptr<ModelStore::Writer> writer,
                     jobs_.models().Begin(chunk.hash(), chunk.bytes(), jobs_.ModelsInUse()));
    do {
      RETURN_IF_ERROR(CheckMessage(chunk));
      RETURN_IF_ERROR(writer->Add(chunk.data()));
    } while (reader.Read(&chunk));
    return writer->Finish();
  }

  JobManager& jobs_;
  const CoordinatorOptions& options_;
};

class HistoryService final : public v1::HistoryReader::Service {
 public:
  HistoryService(History& history, const CoordinatorOptions& options) : history_(history), options_(options) {}

  grpc::Status Query(grpc::ServerContext* c, const v1::QueryRequest* q, grpc::ServerWriter<v1::Record>* writer) override {
    if (absl::Status may = May(*c, Role::kReader, *q); !may.ok()) return ToGrpc(may);
    RecordFilter filter;
    filter.target = q->target();
    filter.workload = q->workload();
    filter.device_model = q->device_model();
    filter.network = q->network();
    if (absl::Status status = CheckNetwork(history_, q->network(), "the service's history"); !status.ok())
      return ToGrpc(status);
    absl::StatusOr<std::vector<TuningRecord>> records = history_.TopK(filter, std::max<int64_t>(1, q->top()));
    if (!records.ok()) return ToGrpc(records.status());
    for (const TuningRecord& record : *records) {
      if (!Write(record, *writer)) break;
    }
    return grpc::Status::OK;
  }

  grpc::Status ForBuild(grpc::ServerContext* c, const v1::ForBuildRequest* q,
                        grpc::ServerWriter<v1::Record>* writer) override {
    if (absl::Status may = May(*c, Role::kReader, *q); !may.ok()) return ToGrpc(may);
    absl::StatusOr<std::string> model = ModelForBuild(history_, q->target(), q->device_model(), q->may_differ());
    if (!model.ok()) return ToGrpc(model.status());
    auto records =
        RecordsForBuild(history_, {q->workload_keys().begin(), q->workload_keys().end()}, *model, q->target());
    if (!records.ok()) return ToGrpc(records.status());
    for (const auto& [key, record] : *records) {
      if (!Write(record, *writer)) break;
    }
    return grpc::Status::OK;
  }

 private:
  absl::Status May(const grpc::ServerContext& context, Role needed) {
    return Authorize(context, options_.credentials.authority, needed);
  }

  absl::Status May(const grpc::ServerContext& context, Role needed, const google::protobuf::Message& request) {
    RETURN_IF_ERROR(May(context, needed));
    return CheckMessage(request);
  }

  // False when the caller has gone. Waits for it while it is slow.
  static bool Write(const TuningRecord& record, grpc::ServerWriter<v1::Record>& writer) {
    v1::Record message;
    ToProto(record, message);
    return writer.Write(message);
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
    if (host_ != nullptr) host_->Shutdown();
    tracker_.reset();
    host_.reset();
  }

  absl::Status Start() {
    ASSIGN_OR_RETURN(jobs_, JobManager::Open(options_.jobs));
    tuning_ = std::make_unique<TuningService>(*jobs_, options_);
    reader_ = std::make_unique<HistoryService>(jobs_->history(), options_);
    ServiceHostOptions host{options_.listen, options_.credentials};
    if (options_.tracker.empty()) {
      const std::string state = options_.state.empty() ? options_.jobs.history + ".tracker" : options_.state;
      // Its own tuners need neither a certificate that names a loopback address nor a token.
      ASSIGN_OR_RETURN(tracker_, TrackerServer::Start(host, {}, state, {tuning_.get(), reader_.get()}));
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
  std::vector<Metric> Metrics() {
    std::vector<Metric> metrics = tracker_ == nullptr ? std::vector<Metric>() : tracker_->Metrics();
    std::map<std::string, double> states = {{"queued", 0}, {"running", 0}, {"done", 0}, {"failed", 0}, {"cancelled", 0}};
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
    metrics.push_back(Metric::Gauge("diapason_service_models", "Models that are kept", static_cast<double>(models.models)));
    metrics.push_back(
        Metric::Gauge("diapason_service_model_bytes", "Bytes of the models that are kept", static_cast<double>(models.bytes)));
    metrics.push_back(Metric::Gauge("diapason_service_trials", "Trials of all jobs", trials));
    metrics.push_back(Metric::Gauge("diapason_service_trials_per_second", "Of the jobs that run", rate));
    return metrics;
  }

 private:
  const CoordinatorOptions options_;
  std::string reach_;  // the tracker
  std::unique_ptr<JobManager> jobs_;
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

}  // namespace diapason
