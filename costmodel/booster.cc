#include "costmodel/booster.h"

#include <dlfcn.h>
#include <xgboost/c_api.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {
namespace {

absl::Status Check(int code, const char* what) {
  if (code == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("XGBoost cannot ", what, ": ", XGBGetLastError()));
}

// numpy's array interface, by which XGBoost reads memory in place.
std::string ArrayInterface(const float* data, size_t rows, int columns) {
  return absl::StrCat("{\"data\":[", reinterpret_cast<uintptr_t>(data), ",true],\"shape\":[", rows, ",", columns,
                      "],\"typestr\":\"<f4\",\"version\":3}");
}

// XGBoost reads models with a thread a core, whatever its parameters say, and OpenMP's threads go on spinning for a
// while when they are done: they would disturb kernels that are timed on this host. Its default can be set for each
// thread that calls; by name, since OpenMP is XGBoost's library and none of ours.
void KeepToThisThread() {
  using SetThreads = void (*)(int);
  static const auto set_threads = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set_threads != nullptr) set_threads(1);
}

struct FreeMatrix {
  void operator()(void* handle) const { XGDMatrixFree(handle); }
};
using Matrix = std::unique_ptr<void, FreeMatrix>;

absl::StatusOr<Matrix> MakeMatrix(const TrainingMatrix& from, int threads) {
  DMatrixHandle handle = nullptr;
  const std::string array = ArrayInterface(from.features.data(), from.labels.size(), from.num_features);
  const std::string config = absl::StrCat("{\"missing\":NaN,\"nthread\":", threads, "}");
  RETURN_IF_ERROR(Check(XGDMatrixCreateFromDense(array.c_str(), config.c_str(), &handle), "take the samples"));
  Matrix matrix(handle);
  RETURN_IF_ERROR(
      Check(XGDMatrixSetFloatInfo(handle, "label", from.labels.data(), from.labels.size()), "take the labels"));
  if (!from.group_sizes.empty()) {
    RETURN_IF_ERROR(Check(XGDMatrixSetUIntInfo(handle, "group", from.group_sizes.data(), from.group_sizes.size()),
                          "take the groups"));
  }
  if (!from.weights.empty()) {
    RETURN_IF_ERROR(
        Check(XGDMatrixSetFloatInfo(handle, "weight", from.weights.data(), from.weights.size()), "take the weights"));
  }
  return matrix;
}

absl::Status Configure(BoosterHandle handle, const BoosterOptions& options) {
  const std::pair<const char*, std::string> params[] = {
      {"objective", options.objective},
      {"tree_method", "hist"},
      {"max_bin", "128"},
      {"max_depth", absl::StrCat(options.max_depth)},
      {"eta", absl::StrCat(options.learning_rate)},
      {"min_child_weight", "0.5"},
      {"colsample_bytree", "0.6"},
      {"lambda", "1"},
      {"base_score", "0"},
      {"nthread", absl::StrCat(options.threads)},
      {"seed", absl::StrCat(options.seed & 0x7fffffff)},
      {"verbosity", "0"},
  };
  for (const auto& [name, value] : params)
    RETURN_IF_ERROR(Check(XGBoosterSetParam(handle, name, value.c_str()), "take a parameter"));
  return absl::OkStatus();
}

// The number behind the last ':' of "[3]\theld_out-rmse:0.25".
double MetricOf(const char* line) {
  const char* colon = std::strrchr(line, ':');
  return colon == nullptr ? 0 : std::strtod(colon + 1, nullptr);
}

constexpr int kPatience = 20;

}  // namespace

absl::StatusOr<std::unique_ptr<Booster>> Booster::Train(const TrainingMatrix& matrix, const BoosterOptions& options,
                                                        int trees, const std::function<bool()>& keep_on) {
  ASSIGN_OR_RETURN(Matrix data, MakeMatrix(matrix, options.threads));
  BoosterHandle handle = nullptr;
  const DMatrixHandle cached[] = {data.get()};
  RETURN_IF_ERROR(Check(XGBoosterCreate(cached, 1, &handle), "start a model"));
  std::unique_ptr<Booster> trained(new Booster(handle));
  RETURN_IF_ERROR(Configure(handle, options));
  for (int tree = 0; tree < trees; ++tree) {
    if (keep_on && !keep_on()) return absl::CancelledError("training was given up");
    RETURN_IF_ERROR(Check(XGBoosterUpdateOneIter(handle, tree, data.get()), "grow a tree"));
  }
  // Through bytes, so that the result neither holds the training data nor its caches, and is configured for one thread
  // a caller.
  ASSIGN_OR_RETURN(std::string bytes, trained->Serialize());
  return Parse(bytes);
}

absl::StatusOr<int> Booster::BestTrees(const TrainingMatrix& matrix, const TrainingMatrix& held_out,
                                       const BoosterOptions& options, int trees, const std::function<bool()>& keep_on) {
  ASSIGN_OR_RETURN(Matrix data, MakeMatrix(matrix, options.threads));
  ASSIGN_OR_RETURN(Matrix judge, MakeMatrix(held_out, options.threads));
  BoosterHandle handle = nullptr;
  const DMatrixHandle cached[] = {data.get(), judge.get()};
  RETURN_IF_ERROR(Check(XGBoosterCreate(cached, 2, &handle), "start a model"));
  std::unique_ptr<Booster> owner(new Booster(handle));
  RETURN_IF_ERROR(Configure(handle, options));
  int best = trees;
  double best_error = 0;
  for (int tree = 0; tree < trees; ++tree) {
    if (keep_on && !keep_on()) return absl::CancelledError("training was given up");
    RETURN_IF_ERROR(Check(XGBoosterUpdateOneIter(handle, tree, data.get()), "grow a tree"));
    DMatrixHandle judged[] = {judge.get()};
    const char* names[] = {"held_out"};
    const char* line = nullptr;
    RETURN_IF_ERROR(Check(XGBoosterEvalOneIter(handle, tree, judged, names, 1, &line), "judge a model"));
    const double error = MetricOf(line);
    if (tree == 0 || error < best_error) {
      best_error = error;
      best = tree + 1;
    } else if (tree + 1 - best >= kPatience) {
      break;
    }
  }
  return best;
}

absl::StatusOr<std::unique_ptr<Booster>> Booster::Parse(const std::string& bytes) {
  KeepToThisThread();
  BoosterHandle handle = nullptr;
  RETURN_IF_ERROR(Check(XGBoosterCreate(nullptr, 0, &handle), "start a model"));
  std::unique_ptr<Booster> parsed(new Booster(handle));
  RETURN_IF_ERROR(Check(XGBoosterLoadModelFromBuffer(handle, bytes.data(), bytes.size()), "read a model"));
  RETURN_IF_ERROR(Check(XGBoosterSetParam(handle, "nthread", "1"), "take a parameter"));
  RETURN_IF_ERROR(Check(XGBoosterSetParam(handle, "verbosity", "0"), "take a parameter"));
  // The first prediction applies the parameters, which is not safe from several threads: done here.
  bst_ulong columns = 0;
  RETURN_IF_ERROR(Check(XGBoosterGetNumFeature(handle, &columns), "read a model"));
  if (columns == 0) return absl::InternalError("XGBoost read a model of no features");
  const std::vector<float> zeros(columns);
  float ignored;
  parsed->Predict(zeros, static_cast<int>(columns), absl::MakeSpan(&ignored, 1));
  return parsed;
}

Booster::~Booster() { XGBoosterFree(handle_); }

void Booster::Predict(absl::Span<const float> features, int num_features, absl::Span<float> out) const {
  DIAPASON_CHECK(features.size() == out.size() * static_cast<size_t>(num_features));
  if (out.empty()) return;
  static const char* const kConfig =
      "{\"type\":1,\"training\":false,\"iteration_begin\":0,\"iteration_end\":0,\"strict_shape\":false,"
      "\"missing\":NaN,\"cache_id\":0}";
  const std::string array = ArrayInterface(features.data(), out.size(), num_features);
  const bst_ulong* shape = nullptr;
  bst_ulong dimensions = 0;
  const float* result = nullptr;
  const int code = XGBoosterPredictFromDense(handle_, array.c_str(), kConfig, nullptr, &shape, &dimensions, &result);
  DIAPASON_CHECK_MSG(code == 0, XGBGetLastError());
  std::memcpy(out.data(), result, out.size() * sizeof(float));
}

absl::StatusOr<std::string> Booster::Serialize() const {
  bst_ulong size = 0;
  const char* bytes = nullptr;
  RETURN_IF_ERROR(Check(XGBoosterSaveModelToBuffer(handle_, "{\"format\":\"ubj\"}", &size, &bytes), "write a model"));
  return std::string(bytes, size);
}

}  // namespace diapason
