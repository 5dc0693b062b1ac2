#include "worker/process/frame.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "diapason/v1/process.pb.h"

namespace diapason {
namespace {

v1::ProcessMessage StageMessage(const std::string& stage) {
  v1::ProcessMessage message;
  message.mutable_progress()->set_stage(stage);
  return message;
}

// Cut at every byte: whole messages come out, in order, and never a half one.
TEST(FrameTest, DecodesAStreamCutAnywhere) {
  std::string stream =
      EncodeFrame(StageMessage("compile")) + EncodeFrame(v1::ProcessMessage()) + EncodeFrame(StageMessage("run"));
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    FrameDecoder decoder;
    std::vector<std::string> messages;
    for (const std::string& piece : {stream.substr(0, cut), stream.substr(cut)}) {
      decoder.Append(piece.data(), piece.size());
      for (auto next = decoder.Next(); next.ok() && next->has_value(); next = decoder.Next())
        messages.push_back(**next);
    }
    ASSERT_EQ(messages.size(), 3u) << cut;
    v1::ProcessMessage last;
    ASSERT_TRUE(last.ParseFromString(messages[2]));
    EXPECT_EQ(last.progress().stage(), "run");
  }
}

TEST(FrameTest, RefusesALengthThatIsTooLarge) {
  FrameDecoder decoder;
  decoder.Append("\xff\xff\xff\xff", 4);
  EXPECT_TRUE(absl::IsDataLoss(decoder.Next().status()));
}

TEST(FrameTest, ReadsWhatWasWrittenAndTellsHowAStreamEnds) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  ASSERT_TRUE(WriteMessage(fds[0], StageMessage("load")).ok());
  v1::ProcessMessage message;
  ASSERT_TRUE(ReadMessage(fds[1], message).ok());
  EXPECT_EQ(message.progress().stage(), "load");
  std::string half = EncodeFrame(StageMessage("load")).substr(0, 6);
  ASSERT_EQ(write(fds[0], half.data(), half.size()), 6);
  close(fds[0]);
  EXPECT_EQ(ReadMessage(fds[1], message), absl::DataLossError("the stream ends inside a message"));
  EXPECT_TRUE(absl::IsOutOfRange(ReadMessage(fds[1], message)));
  EXPECT_TRUE(absl::IsUnavailable(WriteMessage(fds[1], message)));
  close(fds[1]);
}

}  // namespace
}  // namespace diapason
