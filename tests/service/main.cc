// As the program's own main: models are read by this file again.
#include <gtest/gtest.h>

#include <string>

#include "service/import_model.h"
#include "worker/process/child_process.h"

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "internal-importer") return diapason::ImporterMain(diapason::kChildSocket);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
