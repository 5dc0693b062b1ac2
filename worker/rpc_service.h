// A gRPC service whose calls are checked by their headers first: a call without the right token ends before a byte of
// its message is taken, and a message is only parsed when its length and the number of its parts are within the
// method's limits (16 million empty submessages fit into 32 MiB and need 2 GB once they are parsed). For .cc files that
// speak gRPC.
//
// To that end each method, also a unary one, is served as a stream of bytes, which looks the same on the wire; gRPC's
// own unary methods read and parse a message before anybody is asked. No call holds a thread while it waits.
//
//   class Jobs : public RpcService {
//     explicit Jobs(std::shared_ptr<CallGate> gate) : RpcService("diapason.v1.Jobs", std::move(gate)) {
//       Unary<GetRequest, Job>("Get", {Role::kReader}, [this](const CallInfo& call, const GetRequest& request,
//       Reply<Job> reply) {
//         reply(absl::OkStatus(), Find(request.id()));
//       });
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
#include "worker/call_gate.h"

namespace diapason {

// Which threads run the handler of a method.
enum class Lane {
  kInline,  // gRPC's own: for what does not block
  kShort,   // some of the service's own: locks, disk
  kLong,    // others of its own: seconds
};

struct MethodRules {
  Role role = Role::kAdmin;
  size_t max_bytes = 64 << 10;  // of a message
  size_t max_parts = 4096;      // submessages, texts, and fields that we do not know, of a message
  Lane lane = Lane::kInline;
};

// What a handler may know of its call.
struct CallInfo {
  Caller caller;
  // The caller has gone: nobody reads the answer, which is still to be given. Shared with whoever answers later.
  std::shared_ptr<const std::atomic<bool>> gone;
};

class RpcService : public grpc::Service {
 public:
  using Message = google::protobuf::Message;
  // To be called exactly once, from any thread; before the service ends.
  template <typename Response>
  using Reply = std::function<void(const absl::Status&, Response)>;

  // Takes the messages of a stream, from one thread at a time.
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual absl::Status Add(const Message& message) = 0;
    virtual absl::Status Finish() = 0;  // after the last
  };

  // `name`: with its package.
  RpcService(std::string name, std::shared_ptr<CallGate> gate);
  // REQUIRES: the server has ended.
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

  // The handler returns all of the stream.
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

  // The answer to a stream that came to its end well is empty.
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
  // Runs `work` where the rules say.
  void Run(Lane lane, std::function<void()> work);

  const std::string name_;
  const std::shared_ptr<CallGate> gate_;
  int methods_ = 0;
  std::unique_ptr<Threads> short_, long_;
};

// InvalidArgument when `bytes` cannot be such a message, or has more parts; ResourceExhausted past `max_bytes`. Else
// `message` is what it holds.
absl::Status ParseWithin(const grpc::ByteBuffer& bytes, const MethodRules& rules, google::protobuf::Message& message);

}  // namespace diapason
