// The files of the page, which are part of the program. Safe from any thread.
#pragma once

#include <string_view>
#include <vector>

namespace diapason {

struct PageAsset {
  std::string_view name;  // "page.css"
  std::string_view type;  // "text/css; charset=utf-8"
  std::string_view text;
};

// index.html first, then style sheets, then scripts in the order in which they are to be loaded.
const std::vector<PageAsset>& PageAssets();

}  // namespace diapason
