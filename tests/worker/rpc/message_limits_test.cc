#include "worker/rpc/message_limits.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <set>

#include "diapason/v1/history.pb.h"
#include "diapason/v1/measure.pb.h"
#include "diapason/v1/tracker.pb.h"
#include "diapason/v1/tuning.pb.h"

namespace diapason {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

TEST(MessageLimitsTest, AnErrorNamesFieldAndLimit) {
  v1::RegisterRequest worker;
  worker.set_name(std::string(256, 'x'));
  EXPECT_EQ(CheckMessage(worker), absl::OkStatus());
  worker.set_name(std::string(40 << 20, 'x'));
  EXPECT_EQ(CheckMessage(worker),
            absl::InvalidArgumentError("RegisterRequest.name has 41943040 bytes, more than the limit of 256"));
  worker.clear_name();
  for (int i = 0; i < 65; ++i) worker.add_devices();
  EXPECT_EQ(CheckMessage(worker),
            absl::InvalidArgumentError("RegisterRequest.devices has 65 elements, more than the limit of 64"));
  worker.clear_devices();
  (*worker.mutable_labels())["rack"] = std::string(257, 'x');
  EXPECT_EQ(CheckMessage(worker),
            absl::InvalidArgumentError("RegisterRequest.LabelsEntry.value has 257 bytes, more than the limit of 256"));
  v1::SubmitRequest submit;
  submit.add_requests()->mutable_timing()->set_repeat(2147483647);
  EXPECT_EQ(CheckMessage(submit),
            absl::InvalidArgumentError("TimingOptions.repeat is 2147483647; its limits are 0 and 1000"));
  submit.mutable_requests(0)->mutable_timing()->set_repeat(1000);
  EXPECT_EQ(CheckMessage(submit), absl::OkStatus());
  for (const double seconds : {std::nan(""), -1.0, std::numeric_limits<double>::infinity(), 1e6}) {
    submit.mutable_requests(0)->set_run_timeout_seconds(seconds);
    EXPECT_TRUE(absl::IsInvalidArgument(CheckMessage(submit))) << seconds;
  }
}

TEST(MessageLimitsTest, AFieldMayBeLeftToItsReader) {
  v1::ReportRequest report;
  report.add_outcomes()->mutable_result()->mutable_timing()->add_samples(std::nan(""));
  EXPECT_EQ(CheckMessage(report), absl::InvalidArgumentError("Timing.samples is nan; its limits are 0 and 1e+18"));
  EXPECT_EQ(CheckMessage(report, "outcomes"), absl::OkStatus());
}

TEST(MessageLimitsTest, FieldsOfNewerProgramsAreTakenInModeration) {
  v1::OpenRequest open;
  google::protobuf::UnknownFieldSet* unknown = open.GetReflection()->MutableUnknownFields(&open);
  unknown->AddLengthDelimited(1000, std::string(1000, 'x'));
  EXPECT_EQ(CheckMessage(open), absl::OkStatus());
  unknown->AddLengthDelimited(1001, std::string(1 << 20, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckMessage(open)));
}

// All messages that a request consists of.
void Collect(const Descriptor* message, std::set<const Descriptor*>& all) {
  if (!all.insert(message).second) return;
  for (int i = 0; i < message->field_count(); ++i)
    if (message->field(i)->message_type() != nullptr) Collect(message->field(i)->message_type(), all);
}

std::set<const Descriptor*> MessagesOfServices() {
  std::set<const Descriptor*> all;
  for (const Descriptor* some : {v1::OpenRequest::descriptor(), v1::RegisterRequest::descriptor(),
                                 v1::TuneSpec::descriptor(), v1::QueryRequest::descriptor()}) {
    for (int s = 0; s < some->file()->service_count(); ++s) {
      const google::protobuf::ServiceDescriptor* service = some->file()->service(s);
      for (int m = 0; m < service->method_count(); ++m) {
        Collect(service->method(m)->input_type(), all);
        Collect(service->method(m)->output_type(), all);
      }
    }
  }
  return all;
}

TEST(MessageLimitsTest, TheTableNamesFieldsThatThereAre) {
  std::set<std::string> fields;
  for (const Descriptor* message : MessagesOfServices())
    for (int i = 0; i < message->field_count(); ++i) fields.insert(message->name() + "." + message->field(i)->name());
  const std::vector<std::string> limited = LimitedFields();
  EXPECT_GT(limited.size(), 40u);
  for (const std::string& field : limited) EXPECT_TRUE(fields.contains(field)) << field;
  EXPECT_EQ(std::set<std::string>(limited.begin(), limited.end()).size(), limited.size());
}

// No text, list or floating-point number of a message that travels is without a limit.
TEST(MessageLimitsTest, EveryFieldHasALimit) {
  int checked = 0;
  for (const Descriptor* type : MessagesOfServices()) {
    if (type->options().map_entry()) continue;
    const Message* prototype = google::protobuf::MessageFactory::generated_factory()->GetPrototype(type);
    ASSERT_NE(prototype, nullptr) << type->name();
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor* field = type->field(i);
      std::unique_ptr<Message> message(prototype->New());
      const google::protobuf::Reflection& r = *message->GetReflection();
      if (field->is_repeated() && field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        for (int n = 0; n < 70000; ++n) r.AddMessage(message.get(), field);
      } else if (field->is_repeated() && field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        for (int n = 0; n < 70000; ++n) r.AddString(message.get(), field, "");
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        r.SetString(message.get(), field, std::string(17 << 20, 'x'));
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
        field->is_repeated() ? r.AddDouble(message.get(), field, std::nan(""))
                             : r.SetDouble(message.get(), field, std::nan(""));
      } else {
        continue;
      }
      ++checked;
      EXPECT_TRUE(absl::IsInvalidArgument(CheckMessage(*message))) << type->name() << "." << field->name();
    }
  }
  EXPECT_GT(checked, 150);
}

}  // namespace
}  // namespace diapason
