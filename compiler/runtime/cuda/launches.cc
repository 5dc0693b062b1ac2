#include "compiler/runtime/cuda/launches.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/runtime/cuda/memory.h"

namespace diapason {
namespace {

// The largest cluster that every device with clusters has.
constexpr int kPortableCluster = 8;

}  // namespace

absl::StatusOr<PreparedLaunch> CudaLaunchPreparer::Prepare(const Launch& launch) {
  PreparedLaunch prepared;
  prepared.kernel = launch.kernel;
  const Kernel& kernel = prepared.kernel;
  for (const DeviceBuffer* arg : launch.args) prepared.args.push_back(GpuAddressOf(*arg));
  if (kernel.library != nullptr) {
    RETURN_IF_ERROR(PrepareLibrary(*kernel.library, &prepared));
    return prepared;
  }
  RETURN_IF_ERROR(CheckLaunch(kernel));
  ASSIGN_OR_RETURN(prepared.maps, EncodeTensorMaps(cuda_, kernel, prepared.args));
  const CUresult result = cuda_.ModuleGetFunction(
      &prepared.function, static_cast<const CudaModule*>(launch.module)->get(), kernel.name.c_str());
  if (result == CUDA_ERROR_NOT_FOUND)
    return absl::InvalidArgumentError(absl::StrCat("the kernel binary has no function '", kernel.name, "'"));
  RETURN_IF_ERROR(cuda_.ToStatus(result, absl::StrCat("finding kernel '", kernel.name, "'")));
  if (kernel.shared_bytes > facts_.max_shared_bytes)
    return absl::FailedPreconditionError(absl::StrCat("kernel '", kernel.name, "' needs ", kernel.shared_bytes,
                                                      " bytes of shared memory; ", facts_.model, " has ",
                                                      facts_.max_shared_bytes, " a block"));
  // Without the driver's help each kernel starts after the one before: its own wait is then over at once.
  if (cuda_.LaunchKernelEx == nullptr) prepared.kernel.overlap = false;
  if (kernel.cluster > 1 && cuda_.LaunchKernelEx == nullptr)
    return absl::FailedPreconditionError(absl::StrCat(
        "kernel '", kernel.name, "' uses thread-block clusters, which need a driver of CUDA 11.8 or later"));
  if (kernel.shared_bytes > kMaxStaticSharedBytes) prepared.dynamic_shared = static_cast<unsigned>(kernel.shared_bytes);
  return prepared;
}

absl::Status CudaLaunchPreparer::PrepareLibrary(const LibraryCall& call, PreparedLaunch* prepared) {
  if (libraries_ == nullptr) libraries_ = MakeCudaLibraryCalls(stream_);
  ASSIGN_OR_RETURN(prepared->library, libraries_->Prepare(call));
  if (warm_.count(prepared->library.get()) > 0) return absl::OkStatus();
  const LibraryCall::Operand result = call.Operands().back();
  ASSIGN_OR_RETURN(const auto scratch, AllocateOnGpu(cuda_, context_, result.elements * BytesOf(result.dtype)));
  ASSIGN_OR_RETURN(const auto workspace, AllocateOnGpu(cuda_, context_, prepared->library->workspace_bytes()));
  std::vector<CUdeviceptr> operands = prepared->args;
  operands.back() = GpuAddressOf(*scratch);
  RETURN_IF_ERROR(CallLibrary(*prepared->library, operands, workspace.get()));
  RETURN_IF_ERROR(cuda_.ToStatus(cuda_.StreamSynchronize(stream_), "calling a library"));
  warm_.insert(prepared->library.get());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DeviceBuffer>> CudaLaunchPreparer::WorkspaceFor(
    const std::vector<PreparedLaunch>& launches) {
  int64_t bytes = 0;
  for (const PreparedLaunch& prepared : launches)
    if (prepared.library != nullptr) bytes = std::max(bytes, prepared.library->workspace_bytes());
  if (bytes == 0) return nullptr;
  return AllocateOnGpu(cuda_, context_, bytes);
}

absl::Status PreferSharedMemory(const CudaLibrary& cuda, CUfunction function, const std::string& kernel) {
  return cuda.ToStatus(cuda.FuncSetAttribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                             CU_SHAREDMEM_CARVEOUT_MAX_SHARED),
                       absl::StrCat("preferring shared memory to cache for kernel '", kernel, "'"));
}

absl::Status CudaLaunchPreparer::Allow(const std::vector<PreparedLaunch>& launches) {
  // One function may be launched several times with different needs: the largest count.
  struct Needs {
    std::string kernel;
    unsigned dynamic_shared = 0;
    int cluster = 1;
    bool early = false;
  };
  std::map<CUfunction, Needs> functions;
  for (const PreparedLaunch& prepared : launches) {
    if (prepared.library != nullptr) continue;
    Needs& needs = functions[prepared.function];
    needs.kernel = prepared.kernel.name;
    needs.dynamic_shared = std::max(needs.dynamic_shared, prepared.dynamic_shared);
    needs.cluster = std::max(needs.cluster, prepared.kernel.cluster);
    needs.early |= prepared.kernel.overlap;
  }
  for (const auto& [function, needs] : functions) {
    if (needs.early) RETURN_IF_ERROR(PreferSharedMemory(cuda_, function, needs.kernel));
    if (needs.cluster > kPortableCluster)
      RETURN_IF_ERROR(cuda_.ToStatus(
          cuda_.FuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
          absl::StrCat("allowing a cluster of ", needs.cluster, " blocks for kernel '", needs.kernel, "'")));
    if (needs.dynamic_shared > 0)
      RETURN_IF_ERROR(cuda_.ToStatus(
          cuda_.FuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                 static_cast<int>(needs.dynamic_shared)),
          absl::StrCat("allowing ", needs.dynamic_shared, " bytes of shared memory for kernel '", needs.kernel, "'")));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PreparedLaunch>> CudaLaunchPreparer::PrepareAll(const std::vector<Launch>& launches) {
  std::vector<PreparedLaunch> all;
  all.reserve(launches.size());
  // What is repeated is prepared once: a plan that is timed has each launch many times.
  std::map<std::pair<const Module*, std::vector<DeviceBuffer*>>, size_t> first;
  for (const Launch& launch : launches) {
    const auto [known, is_new] = first.try_emplace({launch.module, launch.args}, all.size());
    // A call of a library prepares memory of its own.
    if (!is_new && launch.kernel.library == nullptr && all[known->second].kernel == launch.kernel) {
      all.push_back(all[known->second]);
      continue;
    }
    ASSIGN_OR_RETURN(PreparedLaunch prepared, Prepare(launch));
    all.push_back(std::move(prepared));
  }
  RETURN_IF_ERROR(Allow(all));
  return all;
}

}  // namespace diapason
