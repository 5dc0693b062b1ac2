// Names of the features that MetricsModel::Evaluate computes, in the order of their places: one table for each kind of
// target. The lists of values in metrics.cc, gpu_estimate.cc and metrics_cpu.cc have the same order; their lengths are
// checked against these tables.
//
//   [0, 28)   the slowest kernel of the candidate
//   [28, 56)  the second slowest
//   [56, 60)  the candidate as a whole
//   [60, 96)  its configuration
//
// "log2" is the binary logarithm of one more than the number: Log2.
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "compiler/tensor/target.h"
#include "scheduler/space.h"

namespace diapason {

inline double Log2(double x) { return std::log2(1.0 + std::max(0.0, x)); }

inline constexpr int kKernelFeatures = 28;
inline constexpr int kTotalFeaturesAt = 2 * kKernelFeatures;
inline constexpr int kParameterFeaturesAt = kTotalFeaturesAt + 4;
inline constexpr int kParameterFeatures = kNumFeatures - kParameterFeaturesAt;

// Of a kernel on a GPU.
inline constexpr const char* kGpuFeatureNames[] = {
    "blocks log2",          // of the grid
    "threads log2",         // of a block
    "shared bytes log2",    // of a block
    "local elements log2",  // of a thread
    "resident blocks",      // that a multiprocessor holds at once
    "waves",                // blocks over those resident on the whole device
    "imbalance",            // of the last wave: 1 is none
    "active warps",         // of a multiprocessor
    "fma cycles log2",      //
    "issue cycles log2",    //
    "shared cycles log2",   //
    "latency cycles log2",  // of the reduction's steps one after the other
    "latency exposed",      // what too few warps and too little parallelism cost, as a factor
    "global bytes log2",    // read, repeated reads included
    "unique bytes log2",    // read at least once
    "loads per operation",  //
    "parallelism log2",     // independent operations of a thread
    "bank conflict",        // of the worst access to shared memory
    "copy rounds log2",     // of a thread at each step
    "steps log2",           // of the reduction
    "contiguous elements",  // of a copy
    "copy lanes",           //
    "operations log2",      //
    "body log2",            // iterations of one pass over the unrolled body
    "operations per byte",  //
    "unrolled log2",        //
    "nanoseconds log2",     // the analytic estimate
    "memory nanoseconds log2",
};

// Of a kernel on a processor.
inline constexpr const char* kCpuFeatureNames[] = {
    "blocks log2",           // iterations of the parallel loop
    "imbalance",             // of the cores: 1 is none
    "compute cycles log2",   //
    "load cycles log2",      //
    "l1 bytes log2",         // that come into the first cache
    "l2 bytes log2",         // that come into the second
    "operations log2",       //
    "unique bytes log2",     // read at least once
    "accumulators",          // vectors kept in registers
    "loads per operation",   //
    "scalar log2",           // statements that are not vectorised
    "body log2",             // vectors of one pass over the unrolled body
    "overhead cycles log2",  // of loops
    "lanes",                 //
    "local bytes log2",      // private to a thread
    "unrolled log2",         //
    "nanoseconds log2",      // the analytic estimate
    "cycles log2",           //
    "operations per cycle",  //
    "l1 bytes per operation",
    "l2 bytes per operation",
};

inline constexpr const char* kTotalFeatureNames[] = {
    "kernels", "nanoseconds log2", "second over slowest",
    "blocks per cluster",  // that share a reduction; 0: no clusters
};

static_assert(std::size(kGpuFeatureNames) <= kKernelFeatures && std::size(kCpuFeatureNames) <= kKernelFeatures);
static_assert(kTotalFeaturesAt + std::size(kTotalFeatureNames) <= kParameterFeaturesAt);
static_assert(kParameterFeatures > 0 && kParameterFeaturesAt + kParameterFeatures == kNumFeatures);

// A unique name for each of the kNumFeatures places: "slowest: threads log2", "parameter 3". Empty if the place is not
// used on this kind of target.
std::vector<std::string> FeatureNames(const Target& target);

}  // namespace diapason
