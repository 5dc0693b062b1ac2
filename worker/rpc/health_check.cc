#include "worker/rpc/health_check.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "worker/rpc/channel.h"

namespace diapason {
namespace {

// HealthCheckResponse{status: SERVING}. By hand, since Debian has no header for these messages; the request is empty.
constexpr char kServing[] = "\x08\x01";

}  // namespace

absl::Status CheckHealth(const std::string& address, std::chrono::milliseconds timeout,
                         const std::shared_ptr<const ClientCredentials>& credentials) {
  grpc::GenericStub stub(MakeChannel(address, credentials));
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  context.set_wait_for_ready(true);
  const grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  grpc::ByteBuffer answer;
  grpc::Status status;
  const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!status.ok()) return NoAnswer("server", address, FromGrpc(status), credentials);
  grpc::Slice bytes;
  if (!answer.DumpToSingleSlice(&bytes).ok() ||
      std::string(reinterpret_cast<const char*>(bytes.begin()), bytes.size()) != kServing) {
    return absl::UnavailableError("the server at '" + address + "' does not serve now: it is starting or stopping");
  }
  return absl::OkStatus();
}

}  // namespace diapason
