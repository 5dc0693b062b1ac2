#include "worker/process/frame.h"

#include <google/protobuf/message_lite.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace diapason {
namespace {

constexpr size_t kHeaderBytes = 4;

uint32_t DecodeLength(const char* data) {
  uint32_t length = 0;
  for (int i = 3; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(data[i]);
  return length;
}

// Fills `data`. OutOfRange if the stream ends before the first byte.
absl::Status ReadExactly(int fd, char* data, size_t size) {
  size_t done = 0;
  while (done < size) {
    ssize_t n = recv(fd, data + done, size - done, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::UnavailableError(std::string("recv: ") + std::strerror(errno));
    if (n == 0 && done == 0) return absl::OutOfRangeError("end of stream");
    if (n == 0) return absl::DataLossError("the stream ends inside a message");
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

}  // namespace

std::string EncodeFrame(const google::protobuf::MessageLite& message) {
  std::string frame(kHeaderBytes, '\0');
  message.AppendToString(&frame);
  uint32_t length = static_cast<uint32_t>(frame.size() - kHeaderBytes);
  for (size_t i = 0; i < kHeaderBytes; ++i) frame[i] = static_cast<char>(length >> (8 * i));
  return frame;
}

absl::StatusOr<std::optional<std::string>> FrameDecoder::Next() {
  size_t available = buffer_.size() - start_;
  if (available < kHeaderBytes) return std::nullopt;
  uint32_t length = DecodeLength(buffer_.data() + start_);
  if (length > max_bytes_) return absl::DataLossError("a message above the limit of " + std::to_string(max_bytes_));
  if (available < kHeaderBytes + length) return std::nullopt;
  std::string message = buffer_.substr(start_ + kHeaderBytes, length);
  start_ += kHeaderBytes + length;
  if (start_ == buffer_.size()) {
    buffer_.clear();
    start_ = 0;
  } else if (start_ > (1u << 20)) {
    buffer_.erase(0, start_);
    start_ = 0;
  }
  return message;
}

absl::Status WriteMessage(int fd, const google::protobuf::MessageLite& message) {
  std::string frame = EncodeFrame(message);
  size_t done = 0;
  while (done < frame.size()) {
    ssize_t n = send(fd, frame.data() + done, frame.size() - done, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::UnavailableError(std::string("send: ") + std::strerror(errno));
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status ReadMessage(int fd, google::protobuf::MessageLite& message) {
  char header[kHeaderBytes];
  RETURN_IF_ERROR(ReadExactly(fd, header, kHeaderBytes));
  uint32_t length = DecodeLength(header);
  if (length > kMaxFrameBytes)
    return absl::DataLossError("a message above the limit of " + std::to_string(kMaxFrameBytes));
  std::string bytes(length, '\0');
  absl::Status read = ReadExactly(fd, bytes.data(), length);
  if (!read.ok())
    return length > 0 && absl::IsOutOfRange(read) ? absl::DataLossError("the stream ends inside a message") : read;
  if (!message.ParseFromString(bytes)) return absl::DataLossError("a message that does not parse");
  return absl::OkStatus();
}

}  // namespace diapason
