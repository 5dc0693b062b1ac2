#include "compiler/tensor/processor.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace diapason {
namespace {

TEST(Processor, TriplesHaveOneName) {
  for (const char* text : {"aarch64-linux-gnu", "arm64-linux-gnu", "aarch64-unknown-linux-gnu"})
    EXPECT_EQ(NormalTriple(text), "aarch64-linux-gnu") << text;
  for (const char* text : {"x86_64-linux-gnu", "x86_64-pc-linux-gnu", "amd64-linux-gnu"})
    EXPECT_EQ(NormalTriple(text), "x86_64-linux-gnu") << text;
  for (const char* text : {"", "aarch64", "riscv64-linux-gnu", "aarch64-apple-darwin"})
    EXPECT_EQ(NormalTriple(text), "") << text;
}

TEST(Processor, MissingFeaturesAreNamed) {
  const std::set<std::string> haswell = {"sse4_1", "sse4_2", "avx", "avx2", "fma"};
  EXPECT_EQ(CheckFeatures(" avx avx2 fma", haswell), absl::OkStatus());
  EXPECT_EQ(CheckFeatures("", haswell), absl::OkStatus());
  EXPECT_EQ(CheckFeatures(" avx2 avx512f avx512_vnni", haswell),
            absl::FailedPreconditionError(
                "it is compiled for a processor with avx512f, avx512_vnni, which this one does not have"));
  EXPECT_EQ(CheckFeatures(" avx512f", {}), absl::OkStatus()) << "nothing is known of the machine";
}

std::string ObjectOf(unsigned machine) {
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_machine = machine;
  return std::string(reinterpret_cast<const char*>(&header), sizeof header);
}

TEST(Processor, ObjectsOfOtherArchitecturesAreRefused) {
  const bool x86 = HostTriple() == "x86_64-linux-gnu";
  EXPECT_EQ(CheckObjectRunsHere(ObjectOf(x86 ? EM_X86_64 : EM_AARCH64)), absl::OkStatus());
  EXPECT_EQ(CheckObjectRunsHere(ObjectOf(x86 ? EM_AARCH64 : EM_X86_64)).message(),
            x86 ? "it is compiled for aarch64, and this machine is x86-64"
                : "it is compiled for x86-64, and this machine is aarch64");
  EXPECT_EQ(CheckObjectRunsHere("\x7f"
                                "ELF")
                .message(),
            "the kernel binary is no ELF object: it is damaged; build it again");
}

}  // namespace
}  // namespace diapason
