// What is counted before it is parsed; tests/attacks has the calls themselves.
#include "worker/rpc/rpc_service.h"

#include <gtest/gtest.h>

#include "diapason/v1/measure.pb.h"

namespace diapason {
namespace {

grpc::ByteBuffer Bytes(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

MethodRules Rules(size_t bytes, size_t parts) {
  MethodRules rules;
  rules.max_bytes = bytes;
  rules.max_parts = parts;
  return rules;
}

TEST(ParseWithinTest, ReadsWhatIsWithinTheLimits) {
  v1::SubmitRequest request;
  request.set_queue("q");
  for (int i = 0; i < 3; ++i) {
    request.add_requests()->set_workload("w");
    request.mutable_requests(i)->mutable_timing()->set_repeat(3);
  }
  // A queue, three requests, and in each a workload and a timing.
  v1::SubmitRequest read;
  EXPECT_EQ(ParseWithin(Bytes(request.SerializeAsString()), Rules(1000, 10), read), absl::OkStatus());
  EXPECT_EQ(read.SerializeAsString(), request.SerializeAsString());
  EXPECT_EQ(ParseWithin(Bytes(request.SerializeAsString()), Rules(1000, 9), read),
            absl::InvalidArgumentError(
                "the message SubmitRequest cannot be read, or has more than 9 parts, which is the limit"));
  const size_t size = request.ByteSizeLong();
  EXPECT_EQ(ParseWithin(Bytes(request.SerializeAsString()), Rules(size - 1, 10), read),
            absl::ResourceExhaustedError("the message SubmitRequest has " + std::to_string(size) +
                                         " bytes, more than the limit of " + std::to_string(size - 1)));
  EXPECT_EQ(ParseWithin(Bytes(""), Rules(1000, 0), read), absl::OkStatus());
}

// Fields that we do not know are kept by a message, and need more memory there than on the wire.
TEST(ParseWithinTest, UnknownFieldsAreParts) {
  v1::CloseRequest read;
  std::string unknown;
  for (int i = 0; i < 100; ++i) unknown += "\x78\x01";  // field 15, a number
  EXPECT_EQ(ParseWithin(Bytes(unknown), Rules(1000, 100), read), absl::OkStatus());
  EXPECT_FALSE(ParseWithin(Bytes(unknown), Rules(1000, 99), read).ok());
}

TEST(ParseWithinTest, MalformedMessagesAreRefused) {
  const absl::Status malformed = absl::InvalidArgumentError(
      "the message SubmitRequest cannot be read, or has more than 100 parts, which is the limit");
  v1::SubmitRequest read;
  for (const std::string& text : {std::string("\x12\x05\x0a", 3),  // shorter than it says
                                  std::string("\x12\x01\x0a", 3),  // a tag without its value, within a submessage
                                  std::string("\x12\xff\xff\xff\xff\x7f", 6), std::string("\x0b\x0c", 2),  // a group
                                  std::string("\x07", 1)}) {
    EXPECT_EQ(ParseWithin(Bytes(text), Rules(1000, 100), read), malformed);
  }
}

}  // namespace
}  // namespace diapason
