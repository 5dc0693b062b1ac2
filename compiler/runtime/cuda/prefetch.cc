#include "compiler/runtime/cuda/prefetch.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/runtime/cuda/launches.h"
#include "compiler/runtime/cuda/memory.h"

namespace diapason {
namespace {

constexpr const char* kName = "diapason_prefetch";
constexpr int64_t kThreads = 32, kMostBlocks = 16;
constexpr int64_t kRequestBytes = 4096;  // of one instruction; sizes are multiples of 16

// Block (x, y) asks for its share of piece y, a request for each thread at a time. Pieces are chosen by predicates,
// since the arguments of a launch are no array.
std::string KernelText() {
  std::string parameters, choice;
  for (size_t i = 0; i < Prefetch::kMostPieces; ++i) {
    absl::StrAppend(&parameters, i > 0 ? ",\n" : "", "  .param .u64 at", i, ", .param .u64 bytes", i);
    absl::StrAppend(&choice, "  setp.eq.u32 %p, %piece, ", i, ";\n  @%p ld.param.u64 %at, [at", i,
                    "];\n  @%p ld.param.u64 %bytes, [bytes", i, "];\n");
  }
  return absl::StrCat(".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry ", kName, "(\n", parameters,
                      ")\n{\n"
                      "  .reg .pred %p;\n"
                      "  .reg .b32 %piece, %block, %blocks, %threads, %thread, %size;\n"
                      "  .reg .b64 %at, %bytes, %offset, %step, %left, %from;\n"
                      "  mov.u32 %piece, %ctaid.y;\n"
                      "  mov.u64 %at, 0;\n"
                      "  mov.u64 %bytes, 0;\n",
                      choice,
                      "  mov.u32 %block, %ctaid.x;\n"
                      "  mov.u32 %blocks, %nctaid.x;\n"
                      "  mov.u32 %threads, %ntid.x;\n"
                      "  mov.u32 %thread, %tid.x;\n"
                      "  mad.lo.u32 %thread, %block, %threads, %thread;\n"
                      "  mul.lo.u32 %threads, %blocks, %threads;\n"
                      "  mul.wide.u32 %offset, %thread, ",
                      kRequestBytes, ";\n", "  mul.wide.u32 %step, %threads, ", kRequestBytes, ";\n",
                      "again:\n"
                      "  setp.ge.u64 %p, %offset, %bytes;\n"
                      "  @%p bra done;\n"
                      "  sub.u64 %left, %bytes, %offset;\n"
                      "  min.u64 %left, %left, ",
                      kRequestBytes, ";\n",
                      "  cvt.u32.u64 %size, %left;\n"
                      "  add.u64 %from, %at, %offset;\n"
                      "  cp.async.bulk.prefetch.L2.global [%from], %size;\n"
                      "  add.u64 %offset, %offset, %step;\n"
                      "  bra again;\n"
                      "done:\n"
                      "  ret;\n"
                      "}\n");
}

}  // namespace

absl::Status CudaPrefetcher::Load() {
  if (function_ != nullptr) return absl::OkStatus();
  CUmodule module = nullptr;
  RETURN_IF_ERROR(cuda_.ToStatus(cuda_.ModuleLoadDataEx(&module, KernelText().c_str(), 0, nullptr, nullptr),
                                 "loading the kernel that fetches memory ahead"));
  module_ = std::make_unique<CudaModule>(cuda_, context_, module);
  CUfunction function = nullptr;
  RETURN_IF_ERROR(cuda_.ToStatus(cuda_.ModuleGetFunction(&function, module, kName),
                                 "finding the kernel that fetches memory ahead"));
  RETURN_IF_ERROR(PreferSharedMemory(cuda_, function, kName));  // it runs beside kernels that start early
  function_ = function;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PrefetchLaunch>> CudaPrefetcher::Prepare(const std::vector<Launch>& launches,
                                                                    const std::vector<Prefetch>& prefetches) {
  std::vector<PrefetchLaunch> made;
  if (prefetches.empty()) return made;
  RETURN_IF_ERROR(Load());
  for (const Prefetch& prefetch : prefetches) {
    PrefetchLaunch& one = made.emplace_back();
    one.after = prefetch.after;
    one.launch.function = function_;
    one.launch.kernel.name = kName;
    one.launch.args.resize(2 * Prefetch::kMostPieces, 0);
    int64_t most = 0;
    for (size_t i = 0; i < prefetch.pieces.size(); ++i) {
      const DeviceBuffer* buffer = launches[prefetch.pieces[i].launch].args[prefetch.pieces[i].argument];
      const int64_t bytes = buffer->bytes() / 16 * 16;
      one.launch.args[2 * i] = GpuAddressOf(*buffer);
      one.launch.args[2 * i + 1] = static_cast<CUdeviceptr>(bytes);
      one.buffers.push_back(buffer);
      one.bytes += bytes;
      most = std::max(most, bytes);
    }
    const int64_t requests = (most + kRequestBytes - 1) / kRequestBytes;
    one.launch.kernel.grid = {std::clamp<int64_t>((requests + kThreads - 1) / kThreads, 1, kMostBlocks),
                              static_cast<int64_t>(prefetch.pieces.size()), 1};
    one.launch.kernel.block = {kThreads, 1, 1};
  }
  return made;
}

}  // namespace diapason
