// What a lowered kernel does, read off its statements alone.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/lower/stmt.h"

namespace diapason::testing {

struct Counted {
  struct Store {
    bool update;   // of a reduction: it reads the element that it writes
    double times;  // products of extents of the loops around it; of guards only those of a pipeline's steps count
  };
  int64_t threads = 1, blocks = 1, cluster = 1;
  // of allocations, each rounded up to 16 bytes; of overlaid ones the larger part, and those apart
  int64_t shared_bytes = 0;
  std::map<int, BufferDecl> buffers;         // allocated in the kernel
  std::map<int, std::vector<Store>> stores;  // by buffer, in the order of statements
  std::map<int, double> bulk_copies;         // by buffer
  std::map<int, double> tensor_copies;       // by buffer
  std::map<int, double> products;            // by buffer: of instructions on tensor cores
  std::map<int, int> stands_for;             // a register: the buffer that it is written to in the end
  std::map<int, int64_t> reached;  // allocated buffers: the largest element that loops reach with a store, plus 1

  // Stores to a buffer and to the registers that stand for it.
  std::vector<Store> StoresFor(int buffer) const;
};

Counted Count(const KernelFunc& kernel);

// Walks through the kernel at `samples` random iterations (the corners of loops more often than the rest) and evaluates
// every index that these execute. Empty if all lie inside their buffers; else the first that does not, with its
// iteration.
std::string CheckAccesses(const KernelFunc& kernel, uint64_t seed, int samples);

}  // namespace diapason::testing
