// Models, devices and jobs that took the service with them.
#include <gmock/gmock.h>

#include <atomic>

#include "absl/base/config.h"
#include "compiler/tensor/target.h"
#include "diapason/v1/tracker.grpc.pb.h"
#include "diapason/v1/tuning.grpc.pb.h"
#include "service/model_store.h"
#include "service/sha256.h"
#include "service/tune_spec.h"
#include "tests/attacks/attack_fixture.h"
#include "tests/graph/onnx/model_builder.h"
#include "worker/process/convert.h"

namespace diapason {
namespace {

// Processes below `root` that read a model.
int Importers(pid_t root) {
  int count = 0;
  for (pid_t pid : Descendants(root))
    count += ReadText("/proc/" + std::to_string(pid) + "/cmdline").find("internal-importer") != std::string::npos;
  return count;
}

class ModelAttack : public AttackTest {
 protected:
  std::string Write(const std::string& name, const ModelBuilder& model) const {
    std::ofstream(Path(name), std::ios::binary) << model.Bytes();
    return Path(name);
  }
  CliResult Tasks(const std::string& model, std::vector<std::string> more = {}) const {
    std::vector<std::string> args = {"tasks", model, "--target", "cpu -num-cores=1"};
    args.insert(args.end(), more.begin(), more.end());
    return Cli(args);
  }
  CliResult Submit(const std::string& model, const std::string& service) const {
    return Cli({"submit", model, "--target", "cpu -num-cores=1", "--trials", "1", "--service", service});
  }
  // The service answers, and is still the process that it was.
  void ExpectUnharmed(Process& service) {
    EXPECT_TRUE(IsHealthy(service.Address())) << service.err();
    EXPECT_FALSE(service.Poll().has_value()) << service.err();
  }

  static v1::TuneSpec Spec(const std::string& model) {
    TuneSpec spec;
    spec.model = model;
    spec.target = "cpu -num-cores=1";
    v1::TuneSpec message;
    ToProto(spec, message);
    return message;
  }
  static grpc::Status SubmitJob(const std::string& service, const std::string& key, const v1::TuneSpec& spec,
                                int64_t* id) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    v1::SubmitJobRequest request;
    request.set_key(key);
    *request.mutable_spec() = spec;
    v1::SubmitJobResponse response;
    const grpc::Status status = v1::Tuning::NewStub(Dial(service))->Submit(&context, request, &response);
    *id = response.job();
    return status;
  }

  // The model is read by `tasks` and by a service, which is well after it.
  void ExpectTaken(const std::string& path) {
    const CliResult tasks = Tasks(path);
    EXPECT_EQ(tasks.code, 0) << tasks.err;
    auto service = Serve();
    const CliResult submitted = Submit(path, service->Address());
    EXPECT_EQ(submitted.code, 0) << submitted.err;
    ExpectUnharmed(*service);
  }
};

TEST_F(ModelAttack, ATensorOfThousandsOfDimensions) {
  ModelBuilder model(13);
  model.Input("x", std::vector<OnnxDim>(3000, int64_t{1})).Node("Relu", {"x"}, {"y"}).Output("y");
  const std::string path = Write("rank.onnx", model);
  const std::string why = "cannot import '" + path + "': input 'x' has 3000 dimensions, and 24 are supported";
  ExpectError(Tasks(path), why);
  auto service = Serve();
  ExpectError(Submit(path, service->Address()),
              "cannot import 'rank.onnx': input 'x' has 3000 dimensions, and 24 are supported");
  // The same of a weight, and of a result.
  ModelBuilder weight(13);
  weight.Input("x", {int64_t{1}}).Initializer("w", Array(DType::kFloat32, std::vector<int64_t>(3000, 1)));
  weight.Node("Add", {"x", "w"}, {"y"}).Output("y");
  ExpectError(Submit(Write("weight.onnx", weight), service->Address()),
              "cannot import 'weight.onnx': tensor 'w' has 3000 dimensions, and 24 are supported");
  ExpectUnharmed(*service);
}

// `add` appends node n, from one name to the next.
ModelBuilder Chain(
    int nodes, const std::function<void(ModelBuilder&, int n, const std::string& from, const std::string& to)>& add) {
  ModelBuilder model(13);
  model.Input("x", {int64_t{8}});
  std::string last = "x";
  for (int n = 0; n < nodes; ++n) {
    const std::string next = "t" + std::to_string(n);
    add(model, n, last, next);
    last = next;
  }
  model.Output(last);
  return model;
}

TEST_F(ModelAttack, AChainOfTwentyThousandNodes) {
  ExpectTaken(
      Write("chain.onnx", Chain(20000, [](ModelBuilder& model, int n, const std::string& from, const std::string& to) {
              model.Node(n % 2 == 0 ? "Exp" : "Neg", {from}, {to});
            })));
}

TEST_F(ModelAttack, SquaresOfSquares) {
  ExpectTaken(
      Write("squares.onnx", Chain(60, [](ModelBuilder& model, int, const std::string& from, const std::string& to) {
              model.Node("Mul", {from, from}, {to});
            })));
}

#if !defined(ABSL_HAVE_ADDRESS_SANITIZER) && !defined(ABSL_HAVE_THREAD_SANITIZER)  // they reserve more than any limit
TEST_F(ModelAttack, AFewBytesThatAskForAllMemory) {
  ModelBuilder model(13);
  model.Input("x", {int64_t{1}});
  std::string last = "x";
  for (int n = 0; n < 20; ++n) {
    const std::string at = std::to_string(n);
    model.Initializer("s" + at, IntList({1 << 23}));  // 32 MiB of floats each
    model.Node("ConstantOfShape", {"s" + at}, {"c" + at}, {{"value", Array::FromFloats({1}, {1.0f + n})}});
    model.Node("Add", {last, "c" + at}, {"y" + at});
    last = "y" + at;
  }
  model.Output(last);
  const std::string path = Write("ones.onnx", model);
  const std::string why =
      "' cannot be used: reading it took more than 0.4 GiB of memory; allow more with --import-memory";
  ExpectError(Tasks(path, {"--import-memory", "0.4"}), "the model '" + path + why);
  ExpectError(Cli({"build", path, "--target", "cpu", "--out", Path("package"), "--import-memory", "0.4"}),
              "the model '" + path + why);
  ExpectError(Cli({"tune", path, "--target", "cpu", "--history", Path("t.db"), "--import-memory", "0.4"}),
              "the model '" + path + why);
  auto service = Serve({"--import-memory", "0.4"});
  const int64_t before = ResidentBytes(service->pid());
  ExpectError(Submit(path, service->Address()), "the model 'ones.onnx" + why);
  EXPECT_LT(ResidentBytes(service->pid()), before + (int64_t{64} << 20));
  ExpectUnharmed(*service);
}
#endif

TEST_F(ModelAttack, AModelThatTakesForEver) {
  ExpectError(
      Cli({"tasks", "resnet-50", "--target", "cpu", "--import-seconds", "0.01"}),
      "the model 'resnet-50' cannot be used: reading it took longer than 0.01 s; allow more with --import-seconds");
  auto service = Serve({"--import-seconds", "0.01"});
  ExpectError(
      Submit("resnet-50", service->Address()),
      "the model 'resnet-50' cannot be used: reading it took longer than 0.01 s; allow more with --import-seconds");
  ExpectUnharmed(*service);
}

// Whatever is submitted, and after a restart, one model is read at a time.
TEST_F(ModelAttack, JobsThatAreLargeTogether) {
  auto service = Serve();
  const std::string address = service->Address();
  std::vector<std::thread> submitters;
  std::atomic<int> left = 4;
  for (int n = 0; n < 4; ++n) {
    submitters.emplace_back([&, n] {
      int64_t id = 0;
      EXPECT_TRUE(SubmitJob(address, "k" + std::to_string(n), Spec("resnet-50"), &id).ok());
      --left;
    });
  }
  int most = 0;
  while (left > 0) most = std::max(most, Importers(service->pid()));
  for (std::thread& submitter : submitters) submitter.join();
  EXPECT_EQ(most, 1);
  service->Signal(SIGKILL);
  ASSERT_TRUE(WaitFor([&] { return service->Poll().has_value(); }));
  service = Serve({}, address);
  most = 0;
  EXPECT_TRUE(IsHealthy(address));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(6);
  while (std::chrono::steady_clock::now() < until) most = std::max(most, Importers(service->pid()));
  EXPECT_EQ(most, 1);
  ExpectUnharmed(*service);
}

TEST_F(ModelAttack, OneKeySubmittedByManyAtOnce) {
  auto service = Serve();
  const std::string address = service->Address();
  std::vector<std::thread> submitters;
  std::vector<int64_t> ids(8, 0);
  for (int64_t& id : ids)
    submitters.emplace_back([&] { EXPECT_TRUE(SubmitJob(address, "the key", Spec("gemm"), &id).ok()); });
  for (std::thread& submitter : submitters) submitter.join();
  EXPECT_EQ(ids, std::vector<int64_t>(8, 1));
}

// A worker with one device, whose facts are left to the caller.
v1::RegisterRequest EvilWorker() {
  v1::RegisterRequest worker;
  worker.mutable_protocol()->set_low(1);
  worker.mutable_protocol()->set_high(1);
  worker.set_worker_id("evil");
  worker.set_name("evil");
  v1::DeviceDescription& device = *worker.add_devices();
  device.set_name("cpu:0");
  device.set_target("cpu");
  return worker;
}

TEST_F(ModelAttack, DevicesThatCannotBe) {
  auto service = Serve();
  const auto stub = v1::Tracker::NewStub(Dial(service->Address()));
  struct Case {
    std::function<void(v1::DeviceFacts&)> change;
    const char* message;
  };
  const Case cases[] = {
      {[](auto& f) { f.set_vector_bytes(0); }, "vector_bytes is 0 and must be a power of two from 4 to 1024"},
      {[](auto& f) { f.set_vector_bytes(3); }, "vector_bytes is 3 and must be a power of two from 4 to 1024"},
      {[](auto& f) { f.set_max_threads_per_block(0); }, "max_threads_per_block is 0 and must be from 1 to 65536"}};
  for (const Case& c : cases) {
    v1::RegisterRequest worker = EvilWorker();
    v1::DeviceDescription& device = *worker.mutable_devices(0);
    device.set_state(v1::DEVICE_STATE_READY);
    ToProto(DefaultFacts(Target::Parse("cpu").value()), *device.mutable_facts());
    c.change(*device.mutable_facts());
    grpc::ClientContext context;
    v1::RegisterResponse response;
    const grpc::Status status = stub->Register(&context, worker, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.error_message(), std::string("device 'cpu:0' of worker 'evil' cannot be as it says: ") +
                                          c.message + "; install the tracker's version of diapason there");
  }
  // What no field of the kind may be is refused before it is looked at as a device.
  v1::RegisterRequest worker = EvilWorker();
  worker.mutable_devices(0)->mutable_facts()->set_vector_bytes(-64);
  grpc::ClientContext context;
  v1::RegisterResponse response;
  const grpc::Status status = stub->Register(&context, worker, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "DeviceFacts.vector_bytes is -64; its limits are 0 and inf");
  EXPECT_EQ(Submit("gemm", service->Address()).code, 0);
  ExpectUnharmed(*service);
}

TEST_F(ModelAttack, UploadsThatAreCutOffOrTooLarge) {
  auto service = Serve({"--max-models-gib", "0.001"});
  const std::string content(600 << 10, 'x'), hash = [&] {
    Sha256 sum;
    sum.Add(content.data(), content.size());
    return sum.Hex();
  }();
  const auto put = [&](const std::string& name, uint64_t announced, bool whole) {
    grpc::ClientContext context;
    v1::PutModelResponse done;
    auto writer = v1::Tuning::NewStub(Dial(service->Address()))->PutModel(&context, &done);
    v1::ModelChunk chunk;
    chunk.set_hash(name);
    chunk.set_bytes(announced);
    chunk.set_data(content);
    writer->Write(chunk);
    if (!whole) context.TryCancel();
    writer->WritesDone();
    return writer->Finish();
  };
  const auto files = [&] {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(Path("h.db.models")))
      names.push_back(entry.path().filename());
    return names;
  };
  std::filesystem::create_directory(Path("h.db.models"));
  EXPECT_FALSE(put(std::string(64, 'c'), content.size(), false).ok());
  EXPECT_TRUE(WaitFor([&] { return files().empty(); }, 10));
  EXPECT_EQ(put(std::string(64, 'a'), 2 << 20, true).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(put(hash, content.size(), true).ok());
  EXPECT_EQ(files(), std::vector<std::string>{hash + ".onnx"});
  // What a service that was killed left.
  service->Signal(SIGKILL);
  ASSERT_TRUE(WaitFor([&] { return service->Poll().has_value(); }));
  std::ofstream(Path("h.db.models/" + std::string(64, 'b') + ".onnx.part-1-1")) << "half";
  service = Serve();
  EXPECT_TRUE(IsHealthy(service->Address()));
  EXPECT_EQ(files(), std::vector<std::string>{hash + ".onnx"});
}

// Weights in another file would be another user's model, or any file of the service.
TEST_F(ModelAttack, WeightsThatAreAFileOfTheService) {
  for (const char* location : {"h.db", "../h.db", "/etc/passwd"}) {
    ModelBuilder model(13);
    model.Input("x", {int64_t{4}}).Initializer("w", Array::FromFloats({4}, {1, 2, 3, 4}));
    model.Node("Add", {"x", "w"}, {"y"}).Output("y");
    model.External("w", location);
    const std::string path = Write("outside.onnx", model);
    auto service = Serve();
    ExpectError(
        Submit(path, service->Address()),
        "cannot import 'outside.onnx': tensor 'w' has its data in another file, which a service does not have: save "
        "the model as one file");
  }
  // For `tasks`, that of the folder that the model names, but through no link.
  std::filesystem::create_symlink("/etc/passwd", Path("link.bin"));
  ModelBuilder model(13);
  model.Input("x", {int64_t{4}}).Initializer("w", Array::FromFloats({4}, {1, 2, 3, 4}));
  model.Node("Add", {"x", "w"}, {"y"}).Output("y");
  model.External("w", "link.bin");
  const std::string path = Write("link.onnx", model);
  ExpectError(Tasks(path),
              "cannot import '" + path + "': tensor 'w' has external data in 'link.bin', which is a symbolic link");
}

}  // namespace
}  // namespace diapason
