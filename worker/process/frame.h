// Messages over a stream socket: each preceded by its length, 4 bytes little endian.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace google::protobuf {
class MessageLite;
}

namespace diapason {

// A longer message is taken for a broken stream.
inline constexpr uint32_t kMaxFrameBytes = 512u << 20;

// The frame of a message, to be written as it is.
std::string EncodeFrame(const google::protobuf::MessageLite& message);

// Cuts a stream of bytes, given in any pieces, into frames.
class FrameDecoder {
 public:
  explicit FrameDecoder(uint32_t max_bytes = kMaxFrameBytes) : max_bytes_(max_bytes) {}
  void Append(const char* data, size_t size) { buffer_.append(data, size); }
  // The next whole frame's message; nothing while it is incomplete. DataLoss for a length above the limit.
  absl::StatusOr<std::optional<std::string>> Next();

 private:
  const uint32_t max_bytes_;
  std::string buffer_;
  size_t start_ = 0;  // bytes before it were handed out
};

// Blocking, for the process at the other end. Write: Unavailable when the reader is gone. Read: OutOfRange at the end
// of the stream, DataLoss when it ends inside a message or the message does not parse.
absl::Status WriteMessage(int fd, const google::protobuf::MessageLite& message);
absl::Status ReadMessage(int fd, google::protobuf::MessageLite& message);

}  // namespace diapason
