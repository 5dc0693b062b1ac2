// A gRPC service that checks a call's headers first. A call without a valid token is rejected before any byte of its
// message is read. A message is parsed only if its length and its number of parts are within the method's limits: 16
// million empty submessages fit into 32 MiB, but need 2 GB once parsed. To be included only by .cc files that use gRPC.
//
// To make this possible, every method, unary ones included, is served as a stream of bytes, which looks the same on the
// wire. gRPC's own unary methods would read and parse the message before any check. No call occupies a thread while it
// waits.
//
//   class Jobs : public RpcService {
//     explicit Jobs(std::shared_ptr<CallGate> gate) : RpcService("diapason.v1.Jobs", std::move(gate)) {
//       Unary<GetRequest, Job>("Get", {Role::kReader},
//                              [this](const CallInfo& call, const GetRequest& request, Reply<Job> reply) {
//                                reply(absl::OkStatus(), Find(request.id()));
//                              });
//     }
//   };
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/rpc/call_gate.h"

namespace diapason {

// Which threads run the handler of a method.
enum class Lane {
  kInline,  // gRPC's threads: for handlers that do not block
  kShort,   // threads of the service for short work: locks, disk
  kLong,    // other threads of the service, for work that takes seconds
};

struct MethodRules {
  Role role = Role::kAdmin;
  size_t max_bytes = 64 << 10;  // per message
  size_t max_parts = 4096;      // per message: submessages, strings and unknown fields
  Lane lane = Lane::kInline;
};

// What a handler knows about its call.
struct CallInfo {
  Caller caller;
  // Becomes true when the caller disconnects. The handler must still reply, although nobody reads the reply. Shared
  // with code that replies later.
  std::shared_ptr<const std::atomic<bool>> gone;
};

class RpcService : public grpc::Service {
 public:
  using Message = google::protobuf::Message;
  // Must be called exactly once, before the service is destroyed; from any thread.
  template <typename Response>
  using Reply = std::function<void(const absl::Status&, Response)>;

  // Receives the messages of a stream; called by one thread at a time.
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual absl::Status Add(const Message& message) = 0;
    virtual absl::Status Finish() = 0;  // after the last message
  };

  // `name`: the full name, with the package.
  RpcService(std::string name, std::shared_ptr<CallGate> gate);
  // REQUIRES: the server has shut down.
  ~RpcService() override;

 protected:
  template <typename Request, typename Response>
  void Unary(const std::string& method, const MethodRules& rules,
             std::function<void(const CallInfo&, const Request&, Reply<Response>)> handler) {
    auto erased = [handler = std::move(handler)](const CallInfo& call, const Message& request, AnyReply reply) {
      handler(call, static_cast<const Request&>(request),
              [reply](const absl::Status& status, const Response& response) {
                std::vector<grpc::ByteBuffer> answer;
                if (status.ok()) answer.push_back(Serialize(response));
                reply(status, std::move(answer));
              });
    };
    AddUnary(method, rules, Request::default_instance(), std::move(erased));
  }

  // The handler returns all messages of the stream at once.
  template <typename Request, typename Response>
  void ServerStream(const std::string& method, const MethodRules& rules,
                    std::function<absl::StatusOr<std::vector<Response>>(const CallInfo&, const Request&)> handler) {
    auto erased = [handler = std::move(handler)](const CallInfo& call, const Message& request, AnyReply reply) {
      const absl::StatusOr<std::vector<Response>> responses = handler(call, static_cast<const Request&>(request));
      std::vector<grpc::ByteBuffer> answer;
      if (responses.ok())
        for (const Response& response : *responses) answer.push_back(Serialize(response));
      reply(responses.status(), std::move(answer));
    };
    AddUnary(method, rules, Request::default_instance(), std::move(erased));
  }

  // `open` makes the Sink of a call. The reply to a stream that ends without an error is an empty message.
  template <typename Request>
  void ClientStream(const std::string& method, const MethodRules& rules,
                    std::function<std::unique_ptr<Sink>(const CallInfo&)> open) {
    AddClientStream(method, rules, Request::default_instance(), std::move(open));
  }

 private:
  class Call;
  class UnaryCall;
  class StreamCall;
  class Threads;
  using AnyReply = std::function<void(const absl::Status&, std::vector<grpc::ByteBuffer>)>;
  using AnyHandler = std::function<void(const CallInfo&, const Message&, AnyReply)>;
  struct Method {
    std::string name;
    MethodRules rules;
    const Message* request;  // an empty one
    AnyHandler handler;
    std::function<std::unique_ptr<Sink>(const CallInfo&)> open;
  };

  static grpc::ByteBuffer Serialize(const Message& message);
  void AddUnary(const std::string& method, const MethodRules& rules, const Message& request, AnyHandler handler);
  void AddClientStream(const std::string& method, const MethodRules& rules, const Message& request,
                       std::function<std::unique_ptr<Sink>(const CallInfo&)> open);
  void Add(std::shared_ptr<const Method> method);
  // Runs `work` on a thread of `lane`.
  void Run(Lane lane, std::function<void()> work);

  const std::string name_;
  const std::shared_ptr<CallGate> gate_;
  int methods_ = 0;
  std::unique_ptr<Threads> short_, long_;
};

// Parses `bytes` into `message`. InvalidArgument if they are not a message of this type or have more than
// `rules.max_parts` parts; ResourceExhausted if there are more than `rules.max_bytes`.
absl::Status ParseWithin(const grpc::ByteBuffer& bytes, const MethodRules& rules, google::protobuf::Message& message);

}  // namespace diapason
