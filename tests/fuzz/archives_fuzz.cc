// A package of one file from anywhere: refused, or its entries lie inside of it and can be read.
#include <cstdio>
#include <cstdlib>

#include "compiler/build/package.h"
#include "tests/build/archive_writer.h"
#include "tests/fuzz/fuzz.h"

namespace diapason {

std::vector<std::string> FuzzSeeds() {
  return {WriteZip({{"weights.bin", std::string(600, 'w')}, {"kernels/a.c", "source"}, {"manifest.json", "{}"}}),
          WriteZip({{"kernels/", ""}, {"kernels/a.c", "source"}, {"manifest.json", "{\"format\": \"x\"}"}}),
          WriteZip({})};
}

}  // namespace diapason

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace diapason;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto archive = PackageArchive::FromMemory(bytes, "m.dpk");
  FUZZ_EXPECT(archive.ok() || archive.status().message().find('\n') == absl::string_view::npos);
  if (archive.ok()) {
    for (const char* name : {"weights.bin", "kernels/a.c", "manifest.json"}) {
      const absl::StatusOr<std::string_view> contents = (*archive)->Read(name);
      if (!contents.ok() || contents->empty()) continue;
      FUZZ_EXPECT(contents->data() >= bytes.data() && contents->data() + contents->size() <= bytes.data() + size);
    }
  }
  FUZZ_EXPECT(!Package::FromMemory(bytes, "m.dpk").ok());  // none of the seeds' manifests is one
  return 0;
}
