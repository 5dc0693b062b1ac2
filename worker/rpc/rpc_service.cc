#include "worker/rpc/rpc_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/impl/codegen/rpc_service_method.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include <deque>
#include <thread>

#include "base/check.h"
#include "base/mutex.h"
#include "worker/rpc/grpc_status.h"

namespace diapason {
namespace {

constexpr int kShortThreads = 8, kLongThreads = 4;
constexpr int kMaxDepth = 64;

// Counts the parts of a message without keeping any. False when it is malformed or has more than `left`.
bool CountParts(google::protobuf::io::CodedInputStream& in, const google::protobuf::Descriptor& type, int depth,
                size_t& left) {
  using google::protobuf::internal::WireFormatLite;
  while (const uint32_t tag = in.ReadTag()) {
    const auto* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    const auto wire = WireFormatLite::GetTagWireType(tag);
    if (field == nullptr || wire == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (left-- == 0) return false;
    }
    uint64_t number = 0;
    uint32_t length = 0;
    switch (wire) {
      case WireFormatLite::WIRETYPE_VARINT:
        if (!in.ReadVarint64(&number)) return false;
        break;
      case WireFormatLite::WIRETYPE_FIXED64:
        if (!in.Skip(8)) return false;
        break;
      case WireFormatLite::WIRETYPE_FIXED32:
        if (!in.Skip(4)) return false;
        break;
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED: {
        if (!in.ReadVarint32(&length) || length > static_cast<uint32_t>(INT32_MAX)) return false;
        if (field == nullptr || field->type() != google::protobuf::FieldDescriptor::TYPE_MESSAGE) {
          if (!in.Skip(static_cast<int>(length))) return false;
          break;
        }
        if (depth == 0) return false;
        const auto outer = in.PushLimit(static_cast<int>(length));
        if (!CountParts(in, *field->message_type(), depth - 1, left) || in.BytesUntilLimit() != 0) return false;
        in.PopLimit(outer);
        break;
      }
      default:  // groups: no message of ours has one
        return false;
    }
  }
  return in.ConsumedEntireMessage() || in.BytesUntilLimit() == 0;
}

}  // namespace

absl::Status ParseWithin(const grpc::ByteBuffer& bytes, const MethodRules& rules, google::protobuf::Message& message) {
  const std::string name = message.GetDescriptor()->name();
  if (bytes.Length() > rules.max_bytes) {
    return absl::ResourceExhaustedError("the message " + name + " has " + std::to_string(bytes.Length()) +
                                        " bytes, more than the limit of " + std::to_string(rules.max_bytes));
  }
  grpc::ByteBuffer copy(bytes);  // of the references: readers take them
  {
    grpc::ProtoBufferReader reader(&copy);
    google::protobuf::io::CodedInputStream in(&reader);
    size_t left = rules.max_parts;
    if (!CountParts(in, *message.GetDescriptor(), kMaxDepth, left)) {
      return absl::InvalidArgumentError("the message " + name + " cannot be read, or has more than " +
                                        std::to_string(rules.max_parts) + " parts, which is the limit");
    }
  }
  grpc::ProtoBufferReader reader(&copy);
  if (message.ParseFromZeroCopyStream(&reader)) return absl::OkStatus();
  return absl::InvalidArgumentError("the message " + name + " cannot be read");
}

// Threads for handlers that block. The work ends before they do.
class RpcService::Threads {
 public:
  explicit Threads(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
  }
  ~Threads() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.NotifyAll();
    for (std::thread& thread : threads_) thread.join();
  }
  void Add(std::function<void()> work) {
    {
      MutexLock lock(mutex_);
      work_.push_back(std::move(work));
    }
    changed_.NotifyOne();
  }

 private:
  void Loop() {
    MutexLock lock(mutex_);
    while (true) {
      changed_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !work_.empty(); });
      if (work_.empty()) return;
      const std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      lock.Unlock();
      work();
      lock.Lock();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> work_ ABSL_GUARDED_BY(mutex_);  // as many as there are calls
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// From the headers to the end; deletes itself. Finish is called once, by whichever step is the last.
class RpcService::Call : public grpc::ServerGenericBidiReactor {
 public:
  Call(RpcService& service, std::shared_ptr<const Method> method, grpc::CallbackServerContext& context)
      : service_(service), method_(std::move(method)) {
    absl::Status status = service_.gate_->Enter(context, method_->name, method_->rules.role, info_.caller);
    entered_ = status.ok();
    if (entered_) {
      info_.gone = gone_;
    } else {
      Finish(ToGrpc(status));
    }
  }
  // Takes the first message, unless the call was refused.
  void Begin() {
    if (entered_) Read();
  }

  void OnCancel() override { *gone_ = true; }
  void OnDone() override {
    GiveBackRoom();
    if (entered_) service_.gate_->Leave(info_.caller);
    delete this;
  }

 protected:
  void Read() {
    const size_t bytes = method_->rules.max_bytes;
    service_.gate_->TakeRoom(info_.caller, bytes, [this] {
      has_room_ = true;
      StartRead(&buffer_);
    });
  }
  // What was read, and its memory is given back.
  absl::StatusOr<std::unique_ptr<Message>> Parse() {
    std::unique_ptr<Message> message(method_->request->New());
    const absl::Status status = ParseWithin(buffer_, method_->rules, *message);
    buffer_.Clear();
    if (!status.ok()) return status;
    return message;
  }
  void GiveBackRoom() {
    if (std::exchange(has_room_, false)) service_.gate_->GiveBackRoom(info_.caller, method_->rules.max_bytes);
  }

  RpcService& service_;
  const std::shared_ptr<const Method> method_;
  CallInfo info_;
  grpc::ByteBuffer buffer_;

 private:
  const std::shared_ptr<std::atomic<bool>> gone_ = std::make_shared<std::atomic<bool>>(false);
  bool entered_ = false, has_room_ = false;
};

// One message in; any number out.
class RpcService::UnaryCall final : public Call {
 public:
  using Call::Call;
  void OnReadDone(bool ok) override {
    if (!ok) {
      GiveBackRoom();
      return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "a call without its message"));
    }
    service_.Run(method_->rules.lane, [this] { Handle(); });
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the caller has gone"));
    WriteNext();
  }

 private:
  void Handle() {
    absl::StatusOr<std::unique_ptr<Message>> message = Parse();
    if (!message.ok()) {
      GiveBackRoom();
      return Finish(ToGrpc(message.status()));
    }
    const CallInfo info = info_;  // the call may be over before its handler is
    method_->handler(info, **message, [this](const absl::Status& status, std::vector<grpc::ByteBuffer> answer) {
      if (!status.ok() || answer.empty()) return Finish(ToGrpc(status));
      answer_ = std::move(answer);
      WriteNext();
    });
  }
  void WriteNext() {
    if (next_ > 0) answer_[next_ - 1].Clear();
    const grpc::ByteBuffer* message = &answer_[next_++];
    if (next_ == answer_.size()) {
      StartWriteAndFinish(message, grpc::WriteOptions(), grpc::Status::OK);
    } else {
      StartWrite(message);
    }
  }

  std::vector<grpc::ByteBuffer> answer_;
  size_t next_ = 0;
};

// Any number of messages in; an empty one out.
class RpcService::StreamCall final : public Call {
 public:
  using Call::Call;
  void OnReadDone(bool ok) override {
    service_.Run(method_->rules.lane, [this, ok] { ok ? Take() : End(); });
  }

 private:
  void Take() {
    if (sink_ == nullptr) sink_ = method_->open(info_);
    absl::StatusOr<std::unique_ptr<Message>> message = Parse();
    const absl::Status status = message.ok() ? sink_->Add(**message) : message.status();
    GiveBackRoom();
    if (!status.ok()) return Close(status);
    Read();
  }
  // Where the caller has gone, the stream ends as well: the sink finds it too short.
  void End() {
    GiveBackRoom();
    if (sink_ == nullptr) sink_ = method_->open(info_);
    Close(sink_->Finish());
  }
  void Close(const absl::Status& status) {
    sink_.reset();
    if (!status.ok()) return Finish(ToGrpc(status));
    const grpc::Slice nothing;
    empty_ = grpc::ByteBuffer(&nothing, 1);
    StartWriteAndFinish(&empty_, grpc::WriteOptions(), grpc::Status::OK);
  }

  std::unique_ptr<Sink> sink_;
  grpc::ByteBuffer empty_;
};

RpcService::RpcService(std::string name, std::shared_ptr<CallGate> gate)
    : name_(std::move(name)), gate_(std::move(gate)) {}
RpcService::~RpcService() = default;

grpc::ByteBuffer RpcService::Serialize(const Message& message) {
  grpc::ByteBuffer bytes;
  grpc::ProtoBufferWriter writer(&bytes, grpc::kProtoBufferWriterMaxBufferLength,
                                 static_cast<int>(message.ByteSizeLong()));
  DIAPASON_CHECK_MSG(message.SerializeToZeroCopyStream(&writer), "a message of more than 2 GiB");
  return bytes;
}

void RpcService::AddUnary(const std::string& method, const MethodRules& rules, const Message& request,
                          AnyHandler handler) {
  Add(std::make_shared<const Method>(Method{"/" + name_ + "/" + method, rules, &request, std::move(handler), nullptr}));
}

void RpcService::AddClientStream(const std::string& method, const MethodRules& rules, const Message& request,
                                 std::function<std::unique_ptr<Sink>(const CallInfo&)> open) {
  Add(std::make_shared<const Method>(Method{"/" + name_ + "/" + method, rules, &request, nullptr, std::move(open)}));
}

void RpcService::Add(std::shared_ptr<const Method> method) {
  if (method->rules.lane == Lane::kShort && short_ == nullptr) short_ = std::make_unique<Threads>(kShortThreads);
  if (method->rules.lane == Lane::kLong && long_ == nullptr) long_ = std::make_unique<Threads>(kLongThreads);
  auto make = [this, method](grpc::CallbackServerContext* context) -> grpc::ServerGenericBidiReactor* {
    Call* call = nullptr;
    if (method->open == nullptr) {
      call = new UnaryCall(*this, method, *context);
    } else {
      call = new StreamCall(*this, method, *context);
    }
    call->Begin();
    return call;
  };
  AddMethod(
      new grpc::internal::RpcServiceMethod(method->name.c_str(), grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
  MarkMethodRawCallback(methods_++, new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>(make));
}

void RpcService::Run(Lane lane, std::function<void()> work) {
  if (lane == Lane::kInline) return work();
  (lane == Lane::kShort ? short_ : long_)->Add(std::move(work));
}

}  // namespace diapason
