#include <memory>
#include <utility>

#include "base/check.h"
#include "worker/agent/agent.h"
#include "worker/client.h"
#include "worker/tracker/server.h"

namespace diapason {
namespace {

constexpr double kRegisterSeconds = 30;

// The worker leaves before its tracker goes.
struct Embedded {
  std::unique_ptr<TrackerServer> tracker;
  std::unique_ptr<WorkerAgent> worker;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MeasureClient>> StartEmbedded(EmbeddedOptions options) {
  auto embedded = std::make_shared<Embedded>();
  ASSIGN_OR_RETURN(embedded->tracker, TrackerServer::Start(ServiceHostOptions()));
  AgentOptions agent;
  agent.tracker = embedded->tracker->in_process();
  agent.name = "local";
  agent.pipeline = std::move(options.pipeline);
  ASSIGN_OR_RETURN(embedded->worker, WorkerAgent::Start(std::move(agent)));
  RETURN_IF_ERROR(embedded->worker->WaitUntilRegistered(kRegisterSeconds));
  ASSIGN_OR_RETURN(std::unique_ptr<MeasureClient> client,
                   MeasureClient::Connect(embedded->tracker->in_process(), std::move(options.client)));
  client->Own(std::move(embedded));
  return client;
}

}  // namespace diapason
