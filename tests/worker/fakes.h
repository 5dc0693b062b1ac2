// A compiler and a device that misbehave at will, for the processes that the tests start. What they do is written in
// the schedule: Schedule::sketch holds words, those for the builder and one for the kernel, "slow kernel=hang".
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/runtime/device.h"
#include "compiler/tensor/compute_dag.h"
#include "worker/process/toolchain.h"

namespace diapason {

// out[i] = x[i] + x[i], of `elements` elements.
ComputeDag DoublingDag(int64_t elements = 16);

// Words: crash, hang, abort, exit, oom (eats memory), throw, slow (0.2 s), refuse (a compile error), grandchild (starts
// another process that would live for a minute, then hangs), suicide (as if killed from outside), look_around (a
// compile error with what it found it can do). `kernel=NAME` names the kernel.
std::unique_ptr<Toolchain> MakeFakeToolchain();

// The real compiler's reference programs; "stray": every load is 2^36 elements behind its place, farther than any
// device's memory reaches.
std::unique_ptr<Toolchain> MakeStrayingToolchain();

// Host memory, and kernels by name: double (right), wrong, skip (writes nothing), nan, crash, hang, oom, lose (the
// device reports a fault and is lost), refuse, suicide, late (crashes in the timing), fast (right, and impossibly so),
// slow (right, 1 ms), load_crash, look_around (refuses with what it found it can do). Others: double. It times itself
// as 0.1 ms a run. Devices 7, 8 and 9 do not open, 5 only outside a sandbox; 6 is sick while there is a file of the
// name in $DIAPASON_FAKE_SICK.
//
// Looking around tells of: "scratch" (it can write to its scratch folder), "files" (to $DIAPASON_FAKE_OUTSIDE),
// "network" (connect to $DIAPASON_FAKE_PORT of this host), "processes" (signal $DIAPASON_FAKE_PID).
absl::StatusOr<std::unique_ptr<Device>> OpenFakeDevice(const Target& target);

// As a builder does that starts a compiler, which executes only when the FIFO at this path has a reader. Returns an
// exit status.
int StartSlowly(const char* fifo);

}  // namespace diapason
